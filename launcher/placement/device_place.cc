// Checks the request, chooses GPUs, and describes the decisions.
#include "launcher/placement/device_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "launcher/placement/device_ranks.h"
#include "launcher/placement/gang.h"
#include "launcher/placement/near_device.h"

namespace regroup::placement {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;

using HostShares = std::vector<HostShare>;

const topology::Machine& machine_of(const topology::Fabric& fabric, const HostShare& share) {
  return fabric.machines[fabric.hosts[share.host].machine];
}

std::string gpu_list(const topology::Machine& machine, GpuSet set) {
  std::vector<int> numbers;
  for (const std::uint32_t gpu : members_of(set)) {
    numbers.push_back(gpu < machine.gpus.size() ? machine.gpus[gpu].number : static_cast<int>(gpu));
  }
  std::sort(numbers.begin(), numbers.end());
  return fmt::format("GPU{} {}", numbers.size() == 1 ? "" : "s", topology::ranges(numbers));
}

Status check_kept(const topology::Fabric& fabric, const HostShares& allocation,
                  const DeviceRequest& request) {
  if (request.keep == 0) return {};
  if (allocation.size() != 1) return invalid_argument("--keep: requires exactly one host");
  const topology::Machine& machine = machine_of(fabric, allocation[0]);
  const GpuSet taken = request.keep & ~allocation[0].free;
  if (taken != 0) {
    return base::resource_exhausted(
        fmt::format("--keep: {} of {} {} not free", gpu_list(machine, taken),
                    fabric.hosts[allocation[0].host].name, count_of(taken) == 1 ? "is" : "are"));
  }
  const std::uint32_t wanted = request.sets * request.set.gpus;
  if (count_of(request.keep) > wanted) {
    return invalid_argument(fmt::format("--keep: {} requested, but the ranks need only {}",
                                        gpu_list(machine, request.keep), wanted));
  }
  return {};
}

Status check(const topology::Fabric& fabric, const HostShares& allocation,
             const DeviceRequest& request) {
  if (request.sets == 0 || request.set.ranks == 0 || request.set.gpus == 0)
    return invalid_argument("a placement needs at least one rank and one GPU in each set");
  if (request.min_sets > request.sets) {
    return invalid_argument(fmt::format("--min: expected at most {1} sets of ranks, got {0}",
                                        request.min_sets, request.sets));
  }
  REGROUP_RETURN_IF_ERROR(check_kept(fabric, allocation, request));
  for (const HostShare& share : allocation) {
    const topology::Machine& machine = machine_of(fabric, share);
    if (machine.gpus.size() > kMostGpus) {
      return invalid_argument(fmt::format("{} has {} GPUs; expected at most {}",
                                          fabric.hosts[share.host].name, machine.gpus.size(),
                                          kMostGpus));
    }
  }
  return {};
}

bool is_called(const topology::Gpu& gpu, const std::string& label) {
  return std::find(gpu.labels.begin(), gpu.labels.end(), label) != gpu.labels.end() ||
         gpu.product.find(label) != std::string::npos;
}

HostShares only(const topology::Fabric& fabric, HostShares allocation, const std::string& label) {
  for (HostShare& share : allocation) {
    const topology::Machine& machine = machine_of(fabric, share);
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
      if (!is_called(machine.gpus[i], label)) share.free &= ~bit_of(i);
    }
  }
  return allocation;
}

// A label distinguishes kinds of GPUs of one product.
std::string kind_of(const topology::Gpu& gpu) {
  return gpu.labels.empty() ? gpu.product
                            : fmt::format("{} ({})", gpu.product, fmt::join(gpu.labels, ", "));
}

HostShares of_kind(const topology::Fabric& fabric, HostShares allocation, const std::string& kind) {
  for (HostShare& share : allocation) {
    const topology::Machine& machine = machine_of(fabric, share);
    for (const std::uint32_t gpu : members_of(share.free)) {
      if (kind_of(machine.gpus[gpu]) != kind) share.free &= ~bit_of(gpu);
    }
  }
  return allocation;
}

std::vector<std::string> kinds_of(const topology::Fabric& fabric, const HostShares& allocation) {
  std::set<std::pair<std::uint32_t, GpuSet>> seen;
  std::set<std::string> out;
  for (const HostShare& share : allocation) {
    if (!seen.emplace(fabric.hosts[share.host].machine, share.free).second) continue;
    const topology::Machine& machine = machine_of(fabric, share);
    for (const std::uint32_t gpu : members_of(share.free)) out.insert(kind_of(machine.gpus[gpu]));
  }
  return {out.begin(), out.end()};
}

std::uint64_t capacity_of(const HostShares& allocation, const DeviceRequest& request) {
  std::uint64_t out = 0;
  for (const HostShare& share : allocation) {
    std::uint32_t here = count_of(share.free) / request.set.gpus;
    if (request.heed_slots && share.slots != 0)
      here = std::min(here, share.slots / request.set.ranks);
    out += request.sets_per_host == 0 ? here : std::min(here, request.sets_per_host);
  }
  return out;
}

Status does_not_fit(const topology::Fabric& fabric, const HostShares& allocation,
                    const DeviceRequest& request) {
  constexpr std::size_t kShown = 4;
  std::uint64_t gpus = 0;
  std::vector<std::string> hosts;
  for (const HostShare& share : allocation) {
    gpus += count_of(share.free);
    if (hosts.size() < kShown)
      hosts.push_back(fmt::format("{} {}", fabric.hosts[share.host].name, count_of(share.free)));
  }
  if (allocation.size() > kShown) hosts.emplace_back("...");
  const std::uint64_t fits = capacity_of(allocation, request);
  const std::string each =
      request.set.gpus == 1 ? "1 GPU" : fmt::format("{} GPUs of one host", request.set.gpus);
  const std::string what =
      request.set.ranks == 1 ? "ranks" : fmt::format("sets of {} ranks", request.set.ranks);
  const std::string most = request.sets_per_host == 0
                               ? ""
                               : fmt::format(", at most {} on a host,", request.sets_per_host);
  const bool slots =
      request.heed_slots && std::any_of(allocation.begin(), allocation.end(), [&](auto& share) {
        return share.slots != 0 && share.slots < count_of(share.free);
      });
  const std::string slots_text =
      slots ? "; the hosts have fewer slots; --oversubscribe ignores them" : "";
  const std::string label =
      request.label.empty() ? "" : fmt::format(" with the label or product {}", request.label);
  if (fits >= request.sets) {
    return base::resource_exhausted(
        fmt::format("{} {} with {} each do not fit: no path connects the {} free GPUs{} ({})",
                    request.sets, what, each, gpus, label, fmt::join(hosts, ", ")));
  }
  return base::resource_exhausted(fmt::format(
      "{} {} with {} each{} do not fit into {} free GPUs{} ({}); the nearest fit is {}{}",
      request.sets, what, each, most, gpus, label, fmt::join(hosts, ", "),
      fits == 0 ? std::string("none") : fmt::format("{}", fits), slots_text));
}

struct Chosen {
  std::vector<HostPart> parts;
  Prediction predicted;
  HostShares from;
};

Chosen choose(PlacementScorers& scorers, HostShares allocation, const DeviceRequest& request) {
  Chosen out;
  const GangRequest gang{request.sets,          request.set.gpus,
                         request.sets_per_host, request.packing,
                         request.keep,          request.heed_slots ? request.set.ranks : 0};
  if (capacity_of(allocation, request) >= request.sets)
    out.parts = choose_hosts(scorers, allocation, gang);
  if (!out.parts.empty()) out.predicted = predict(scorers, out.parts);
  out.from = std::move(allocation);
  return out;
}

// Prefers GPUs of one product, since a step takes as long as the slowest rank.
Chosen choose_alike(PlacementScorers& scorers, const HostShares& allocation,
                    const DeviceRequest& request, std::vector<std::string>& why) {
  const std::vector<std::string> kinds = kinds_of(scorers.fabric(), allocation);
  if (kinds.size() < 2) return choose(scorers, allocation, request);
  Chosen out;
  std::string kind;
  for (const std::string& one : kinds) {
    Chosen here = choose(scorers, of_kind(scorers.fabric(), allocation, one), request);
    if (here.parts.empty() || (!out.parts.empty() && here.predicted.gbytes <= out.predicted.gbytes))
      continue;
    out = std::move(here);
    kind = one;
  }
  if (!out.parts.empty()) {
    why.push_back(fmt::format(
        "all ranks get GPUs of one kind, {} ({} are free), since the slowest rank determines the "
        "time of a step",
        kind, fmt::join(kinds, ", ")));
    return out;
  }
  out = choose(scorers, allocation, request);
  if (!out.parts.empty())
    why.push_back(
        fmt::format("GPUs of different kinds are mixed, since no kind has enough free GPUs: {}",
                    fmt::join(kinds, ", ")));
  return out;
}

std::string speed(double gbytes) {
  return std::isinf(gbytes) ? std::string("any number of") : fmt::format("{:.2f}", gbytes);
}

// Describes the rings with the most bandwidth.
void explain_rings(const topology::Machine& machine, const RingPlan& plan,
                   std::vector<std::string>& why) {
  constexpr std::size_t kShown = 4;
  for (std::size_t i = 0; i < std::min(plan.rings.size(), kShown); ++i) {
    if (plan.rings[i].ends.size() < 2) return;
    std::vector<int> numbers;
    for (const std::uint32_t end : plan.rings[i].ends) numbers.push_back(machine.gpus[end].number);
    why.push_back(fmt::format("ring over GPUs {}: {:.2f} GB/s", fmt::join(numbers, " "),
                              plan.rings[i].gbytes));
  }
  if (plan.rings.size() > kShown)
    why.push_back(fmt::format("and {} more rings", plan.rings.size() - kShown));
}

void explain_one_host(PlacementScorers& scorers, const HostPart& part,
                      std::vector<std::string>& why) {
  const topology::Machine& machine = scorers.machine_of(part.host);
  PlacementScorer& scorer = scorers.of_host(part.host);
  const PlacementScore score = scorer.score(part.gpus, part.free, RingScope::kInside);
  const std::string& name = scorers.fabric().hosts[part.host].name;
  why.push_back(fmt::format("{} of the {} free GPUs of {}", gpu_list(machine, part.gpus),
                            count_of(part.free), name));
  const GpuSet left = part.free & ~part.gpus;
  if (count_of(left) > 1)
    why.push_back(fmt::format("{} remain free; rings over them would carry {} GB/s",
                              gpu_list(machine, left), speed(score.rest)));
  explain_rings(machine, scorer.rings(part.gpus, RingScope::kInside), why);
}

void explain_hosts(PlacementScorers& scorers, const std::vector<HostPart>& parts,
                   std::vector<std::string>& why) {
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(parts.size(), kShown); ++i) {
    why.push_back(fmt::format(
        "{}: {} of the {} free GPUs", scorers.fabric().hosts[parts[i].host].name,
        gpu_list(scorers.machine_of(parts[i].host), parts[i].gpus), count_of(parts[i].free)));
  }
  if (parts.size() > kShown) why.push_back(fmt::format("and {} more hosts", parts.size() - kShown));
}

void explain(PlacementScorers& scorers, const Chosen& chosen, const DeviceRequest& request,
             DevicePlacement& out) {
  if (chosen.parts.size() == 1) {
    explain_one_host(scorers, chosen.parts.front(), out.why);
  } else {
    explain_hosts(scorers, chosen.parts, out.why);
  }
  const Prediction& predicted = out.predicted;
  if (!std::isinf(predicted.gbytes)) {
    out.why.push_back(
        fmt::format("every rank can send and receive {} GB/s at once{}{}", speed(predicted.gbytes),
                    predicted.narrow.empty() ? "" : "; the bottleneck is ", predicted.narrow));
  }
  if (!std::isinf(predicted.outward)) {
    out.why.push_back(fmt::format(
        "{} hosts: if all ranks send to other hosts at once, each has {} GB/s of the NICs",
        predicted.hosts, speed(predicted.outward)));
  }
  if (!out.shrink_order.empty())
    out.why.push_back(fmt::format("shrink order, down to {}: {}", request.min_sets,
                                  fmt::join(out.shrink_order, ", ")));
}

// Renumbers sets so that the first of the shrink order are the highest; the others keep the order
// of the ring.
void number_by_shrink_order(DevicePlacement& out, std::uint32_t sets) {
  std::vector<std::uint32_t> number(sets, 0);
  for (std::uint32_t i = 0; i < out.shrink_order.size(); ++i)
    number[out.shrink_order[i]] = sets - 1 - i;
  std::uint32_t next = 0;
  for (std::uint32_t set = 0; set < sets; ++set) {
    if (std::ranges::find(out.shrink_order, set) == out.shrink_order.end()) number[set] = next++;
  }
  for (DeviceSlot& slot : out.ranks) slot.set = number[slot.set];
  std::ranges::stable_sort(out.ranks, {}, &DeviceSlot::set);
  for (std::uint32_t i = 0; i < out.shrink_order.size(); ++i) out.shrink_order[i] = sets - 1 - i;
}

}  // namespace

Result<DevicePlacement> choose_devices(const topology::Fabric& fabric, const HostShares& allocation,
                                       const DeviceRequest& request) {
  REGROUP_RETURN_IF_ERROR(check(fabric, allocation, request));
  PlacementScorers scorers(fabric);
  DevicePlacement out;
  const HostShares usable =
      request.label.empty() ? allocation : only(fabric, allocation, request.label);
  const bool deal_nics = request.device == "nic";
  Chosen chosen;
  if (request.device.empty() || request.device == "gpu" || deal_nics) {
    chosen = choose_alike(scorers, usable, request, out.why);
  } else {
    REGROUP_ASSIGN_OR_RETURN(chosen.parts, choose_near(fabric, usable, request));
    chosen.predicted = predict(scorers, chosen.parts);
    out.why.push_back(fmt::format("the GPUs nearest to {} (--map-by device)", request.device));
  }
  if (chosen.parts.empty()) return does_not_fit(fabric, usable, request);
  out.predicted = chosen.predicted;
  const RingScope reach =
      std::isinf(out.predicted.outward) ? RingScope::kInside : RingScope::kOutward;
  out.ranks = ranks_of(scorers, chosen.parts, request.set, reach, deal_nics);
  if (request.by_node) out.ranks = dealt_over_hosts(std::move(out.ranks), request.set.ranks);
  if (request.min_sets > 0)
    out.shrink_order = shrink_order(scorers, out.ranks, request.sets, request.min_sets);
  if (request.last_goes_first) number_by_shrink_order(out, request.sets);
  explain(scorers, chosen, request, out);
  return out;
}

Result<DevicePlacement> place_on_devices(const topology::Fabric& fabric,
                                         const HostShares& allocation,
                                         const DeviceRequest& request) {
  auto out = choose_devices(fabric, allocation, request);
  if (!out.ok()) return out;
  add_servers(fabric, allocation, request.servers, out->ranks);
  std::vector<std::uint32_t> cores(
      request.sets * request.set.ranks,
      request.set.cpus == 0 ? 0 : std::max(1U, request.set.cpus / request.set.ranks));
  cores.resize(out->ranks.size());
  REGROUP_RETURN_IF_ERROR(give_cpus(fabric, allocation, cores, out->ranks));
  return out;
}

std::vector<HostShare> whole_fabric(const topology::Fabric& fabric) {
  HostShares out;
  for (std::uint32_t host = 0; host < fabric.hosts.size(); ++host) {
    const std::size_t gpus = fabric.machines[fabric.hosts[host].machine].gpus.size();
    out.push_back({host, gpus >= kMostGpus ? ~GpuSet{0} : bit_of(gpus) - 1, {}});
  }
  return out;
}

}  // namespace regroup::placement
