// Predicts the bandwidth of rings over given GPUs of given hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "launcher/placement/gang.h"
#include "launcher/placement/rails.h"

namespace regroup::placement {
namespace {

// GB/s each way of a GPU in an NVLink domain of several hosts.
double domain_port(const topology::Fabric& fabric, std::uint32_t domain, std::uint32_t host) {
  if (const double given = fabric.nodes[domain].host_gbytes; given > 0) return given;
  const topology::Machine& machine = fabric.machines[fabric.hosts[host].machine];
  double out = 0;
  for (const topology::Link& link : machine.links) {
    const bool of_gpu = machine.nodes[link.a].kind == topology::NodeKind::kGpu ||
                        machine.nodes[link.b].kind == topology::NodeKind::kGpu;
    if (link.kind == topology::LinkKind::kNvlink && of_gpu) out = std::max(out, link.gbytes);
  }
  return out;
}

void narrow_to(Prediction& out, double gbytes, const std::string& why) {
  if (gbytes >= out.gbytes && !(out.narrow.empty() && gbytes == out.gbytes)) return;
  out.gbytes = gbytes;
  out.narrow = why;
}

std::string narrow_of(const Routes& routes, const RingPlan& plan, const std::string& host) {
  if (plan.rings.empty()) return fmt::format("no path connects them on {}", host);
  if (plan.narrow_rows.empty()) return "";
  const std::size_t more = plan.narrow_rows.size() - 1;
  return fmt::format("{}{} on {}", routes.name(plan.narrow_rows.front()),
                     more == 0 ? "" : fmt::format(" and {} more", more), host);
}

// The links upward that a ring over these hosts uses: those of every node that has some of the
// hosts, but not all.
void narrow_uplinks(const topology::Fabric& fabric, const std::vector<HostPart>& parts,
                    Prediction& out) {
  std::vector<std::uint32_t> below(fabric.nodes.size(), 0);
  for (const HostPart& part : parts) {
    for (std::uint32_t node = fabric.hosts[part.host].leaf; node != topology::kNoPart;
         node = fabric.nodes[node].parent)
      ++below[node];
  }
  for (std::size_t i = 0; i < below.size(); ++i) {
    const topology::FabricNode& node = fabric.nodes[i];
    if (below[i] == 0 || below[i] == parts.size() || node.up_gbytes <= 0) continue;
    narrow_to(out, node.up_gbytes, fmt::format("the links of switch {} upward", node.name));
  }
}

}  // namespace

Prediction predict(PlacementScorers& scorers, const std::vector<HostPart>& parts) {
  const topology::Fabric& fabric = scorers.fabric();
  Prediction out{HUGE_VAL, HUGE_VAL, "", static_cast<std::uint32_t>(parts.size())};
  if (parts.empty()) return {};
  const std::uint32_t domain = fabric.hosts[parts[0].host].nvlink;
  const bool one_domain = domain != topology::kNoPart &&
                          std::all_of(parts.begin(), parts.end(), [&](const HostPart& part) {
                            return fabric.hosts[part.host].nvlink == domain;
                          });
  const RingScope reach =
      parts.size() == 1 || one_domain ? RingScope::kInside : RingScope::kOutward;
  std::set<std::pair<std::uint32_t, GpuSet>> seen;
  for (const HostPart& part : parts) {
    if (!seen.emplace(fabric.hosts[part.host].machine, part.gpus).second) continue;
    PlacementScorer& scorer = scorers.of_host(part.host);
    const std::string& name = fabric.hosts[part.host].name;
    const RingPlan& plan = scorer.rings(part.gpus, reach);
    narrow_to(out, plan.gbytes, narrow_of(scorer.routes(), plan, name));
    if (parts.size() == 1) continue;
    if (one_domain) {
      narrow_to(out, domain_port(fabric, domain, part.host),
                fmt::format("NVLink from {} to other hosts", name));
    } else {
      out.outward = std::min(out.outward, scorer.nic_gbytes() / count_of(part.gpus));
    }
  }
  if (reach != RingScope::kOutward) return out;
  std::string why;
  const double gbytes = over_rails(scorers, parts, out.gbytes, &why);
  if (!why.empty()) narrow_to(out, gbytes, why);
  narrow_uplinks(fabric, parts, out);
  return out;
}

double predicted_step(const Prediction& predicted, std::uint32_t ranks, double bytes,
                      double seconds) {
  constexpr double kHides = 2.0 / 3;  // a backward pass costs twice a forward pass
  if (ranks < 2) return seconds;
  const double busy = 2.0 * (ranks - 1) / ranks * bytes / (predicted.gbytes * 1e9);
  return seconds + std::max(0.0, busy - kHides * seconds);
}

}  // namespace regroup::placement
