// Evaluates a few choices of NICs, each of which gives a feasible schedule, and uses the best.
#include "launcher/placement/rails.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "launcher/placement/device_ranks.h"

namespace regroup::placement {
namespace {

constexpr std::size_t kMostTries = 4;  // number of hosts for whose GPUs the NICs are tried
constexpr NicSet kAllNics = ~NicSet{0};

// Equal hosts with the same GPUs are one Kind.
using Kind = std::pair<std::uint32_t, GpuSet>;  // machine, GPUs

struct Kinds {
  std::set<Kind> railed, plain;  // on switches with rails, and elsewhere
  double change = HUGE_VAL;      // GB/s of the links between rails
  // GB/s of the links of one rail between several groups of rails.
  double rail_up = HUGE_VAL;
  std::string narrow;
};

const topology::FabricNode* rails_of(const topology::Fabric& fabric, std::uint32_t host) {
  const std::uint32_t leaf = fabric.hosts[host].leaf;
  return leaf != topology::kNoPart && fabric.nodes[leaf].rails > 0 ? &fabric.nodes[leaf] : nullptr;
}

Kinds kinds_of(const topology::Fabric& fabric, const std::vector<HostPart>& parts) {
  Kinds out;
  std::set<std::uint32_t> leaves;
  for (const HostPart& part : parts) leaves.insert(fabric.hosts[part.host].leaf);
  for (const HostPart& part : parts) {
    const topology::FabricNode* const leaf = rails_of(fabric, part.host);
    (leaf != nullptr ? out.railed : out.plain).insert({fabric.hosts[part.host].machine, part.gpus});
    if (leaf == nullptr) continue;
    const double up = leaf->parent == topology::kNoPart ? 0
                      : leaf->up_gbytes > 0             ? leaf->up_gbytes
                                                        : HUGE_VAL;
    if (out.narrow.empty() || up < out.change) out.narrow = leaf->name;
    out.change = std::min(out.change, up);
    if (leaves.size() > 1) out.rail_up = std::min(out.rail_up, up / leaf->rails);
  }
  return out;
}

// GB/s through each NIC.
std::vector<double> by_nic(const topology::Machine& machine, const RingPlan& plan) {
  std::vector<double> out(machine.nics.size(), 0.0);
  for (const Ring& ring : plan.rings) {
    for (const std::uint32_t end : ring.ends) {
      if (end >= machine.gpus.size()) out[end - machine.gpus.size()] += ring.gbytes;
    }
  }
  return out;
}

// The NICs nearest to any of the GPUs.
NicSet near_rails(const topology::Machine& machine, GpuSet gpus) {
  NicSet out = 0;
  for (const std::uint32_t gpu : members_of(gpus)) {
    for (const std::uint32_t nic : nearest_nics(machine, gpu)) {
      if (nic < 64) out |= NicSet{1} << nic;
    }
  }
  return out;
}

const RingPlan& plan_of(PlacementScorers& scorers, const Kind& kind, NicSet nics) {
  PlacementScorer& scorer = scorers.of_machine(kind.first);
  return nics == kAllNics ? scorer.rings(kind.second, RingScope::kOutward)
                          : scorer.rings_through(kind.second, nics);
}

// The GB/s if hosts on rails use only these NICs.
double carried(PlacementScorers& scorers, const Kinds& kinds, NicSet nics, double most) {
  double total = most;
  std::vector<double> least;
  for (const Kind& kind : kinds.railed) {
    const RingPlan& plan = plan_of(scorers, kind, nics);
    const std::vector<double> here = by_nic(scorers.fabric().machines[kind.first], plan);
    total = std::min(total, plan.gbytes);
    if (least.empty()) least.assign(here.size(), HUGE_VAL);
    least.resize(std::max(least.size(), here.size()), 0.0);
    for (std::size_t rail = 0; rail < least.size(); ++rail)
      least[rail] = std::min(least[rail], rail < here.size() ? here[rail] : 0.0);
  }
  double straight = 0;
  for (const double rail : least) straight += std::min(rail, kinds.rail_up);
  straight = std::min(straight, total);
  return straight + std::min(total - straight, kinds.change);
}

}  // namespace

double over_rails(PlacementScorers& scorers, const std::vector<HostPart>& parts, double gbytes,
                  std::string* narrow) {
  const bool any = std::any_of(parts.begin(), parts.end(), [&](const HostPart& part) {
    return rails_of(scorers.fabric(), part.host) != nullptr;
  });
  if (!any || parts.size() < 2) return gbytes;
  const Kinds kinds = kinds_of(scorers.fabric(), parts);
  std::vector<NicSet> tries = {kAllNics};
  NicSet common = kAllNics;
  for (const Kind& kind : kinds.railed) {
    const NicSet nics = near_rails(scorers.fabric().machines[kind.first], kind.second);
    common &= nics;
    if (tries.size() <= kMostTries) tries.push_back(nics);
  }
  tries.push_back(common);
  double out = 0;
  for (const NicSet nics : tries) {
    if (nics != 0) out = std::max(out, carried(scorers, kinds, nics, gbytes));
  }
  if (out < gbytes && !about_equal(out, gbytes))
    *narrow = fmt::format("the links of switch {} upward, which lead from one rail to another",
                          kinds.narrow);
  return out;
}

void keep_to_rails(PlacementScorers& scorers, std::vector<HostPart>& parts) {
  const topology::Fabric& fabric = scorers.fabric();
  const auto pivot = std::min_element(
      parts.begin(), parts.end(),
      [](const HostPart& a, const HostPart& b) { return count_of(a.free) < count_of(b.free); });
  if (parts.size() < 2 || rails_of(fabric, pivot->host) == nullptr) return;
  const NicSet rails = near_rails(scorers.machine_of(pivot->host), pivot->gpus);
  std::vector<HostPart> changed = parts;
  for (HostPart& part : changed) {
    const topology::Machine& machine = scorers.machine_of(part.host);
    GpuSet near = 0;
    for (const std::uint32_t gpu : members_of(part.free)) {
      if ((near_rails(machine, bit_of(gpu)) & rails) != 0) near |= bit_of(gpu);
    }
    const std::uint32_t count = count_of(part.gpus);
    if (count_of(near) >= count)
      part.gpus = scorers.of_host(part.host).best(near, count, 0, RingScope::kOutward).gpus;
  }
  const double before = predict(scorers, parts).gbytes, after = predict(scorers, changed).gbytes;
  if (after > before && !about_equal(after, before)) parts = std::move(changed);
}

}  // namespace regroup::placement
