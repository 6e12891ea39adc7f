// The decision is place_job()'s; here is what this host alone decides.
#include "launcher/placement/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/placement/cluster_view.h"
#include "launcher/topology/read_topology.h"

namespace regroup::placement {
namespace {

using base::Result;

// The machine as this job may use it.
Result<topology::Topology> usable_topology(const spec::Options& options,
                                           const alloc::Allocation& allocation) {
  auto topology = topology::read_this_machine(topology::machine_source(options.environment));
  if (!topology.ok()) return topology;
  if (!topology->this_machine) {
    if (options.do_not_launch) return topology;
    return base::unavailable(
        fmt::format("{} describes another machine", topology::machine_source(options.environment)));
  }
  return topology::restricted(std::move(*topology), allocation.hosts.at(0).cores);
}

bool described(const spec::Options& options) {
  return options.environment.contains("HWLOC_XMLFILE") ||
         options.environment.contains("HWLOC_SYNTHETIC");
}

topology::Machine processors_only(topology::Topology topology) {
  topology::Machine out;
  out.processors = std::move(topology);
  return out;
}

}  // namespace

const topology::Topology* PlacedJob::topology_of(std::size_t rank) const {
  const std::uint32_t host = placement.hosts.at(rank);
  return host < topologies.size() && !topologies[host].threads.empty() ? &topologies[host]
                                                                       : nullptr;
}

PlacedJob PlacedJob::with_spare() const {
  PlacedJob out = *this;
  const Policy& policy = placement.policy;
  if (!policy.bound || topologies.size() != 1 || policy.bind_unit > spec::Unit::kCore) return out;
  const topology::Topology& topology = topologies.front();
  std::set<std::uint32_t> taken;
  for (const Slot& slot : placement.slots) taken.insert(slot.threads.begin(), slot.threads.end());
  for (const topology::ThreadSet& cpu :
       topology::parts_of(topology, policy.hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore)) {
    const bool free =
        std::none_of(cpu.begin(), cpu.end(), [&](auto thread) { return taken.contains(thread); });
    if (!free) continue;
    out.placement.slots.push_back({topology::os_numbers(topology, cpu), cpu, "host", "unused"});
    out.placement.hosts.push_back(0);
  }
  return out;
}

std::vector<std::vector<int>> PlacedJob::cores() const {
  std::vector<std::vector<int>> out;
  if (!placement.policy.bound) return out;
  for (const Slot& slot : placement.slots) out.push_back(slot.cpus);
  return out;
}

std::vector<pmi::Binding> PlacedJob::bindings() const {
  std::vector<pmi::Binding> out;
  if (!placement.policy.bound || topologies.empty()) return out;
  for (std::size_t rank = 0; rank < placement.slots.size(); ++rank) {
    const Slot& slot = placement.slots[rank];
    const topology::Topology* const topology = topology_of(rank);
    out.push_back({topology::ranges(slot.cpus),
                   topology == nullptr ? "" : locality_text(*topology, slot.threads)});
  }
  return out;
}

std::vector<std::uint32_t> PlacedJob::threads(const std::vector<std::uint32_t>& slots) const {
  std::map<std::uint32_t, std::uint32_t> members_on;
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::uint32_t> sharers;
  for (std::size_t rank = 0; rank < placement.slots.size(); ++rank) {
    ++members_on[placement.hosts[rank]];
    ++sharers[{placement.hosts[rank], placement.slots[rank].cpus}];
  }
  std::vector<std::uint32_t> out;
  for (std::size_t rank = 0; rank < placement.slots.size(); ++rank) {
    const std::uint32_t host = placement.hosts[rank];
    const Slot& slot = placement.slots[rank];
    const topology::Topology* const topology = topology_of(rank);
    if (slot.threads.empty() || topology == nullptr) {
      out.push_back(std::max(1U, host < slots.size() ? slots[host] / members_on[host] : 1U));
      continue;
    }
    std::set<std::uint32_t> cores;
    for (const std::uint32_t thread : slot.threads)
      cores.insert(topology->threads[thread].part(spec::Unit::kCore));
    const auto units =
        static_cast<std::uint32_t>(placement.policy.hwthreads ? slot.threads.size() : cores.size());
    const std::uint32_t quota = host < quotas.size() ? quotas[host] : 0;
    const std::uint32_t own = units / sharers[{host, slot.cpus}];
    out.push_back(std::max(1U, quota > 0 ? std::min(own, quota / members_on[host]) : own));
  }
  return out;
}

Result<spec::MemberRange> members_here(const spec::Options& options,
                                       const alloc::Allocation& allocation) {
  if (!counts_objects(options)) return members_of(options, {});
  REGROUP_ASSIGN_OR_RETURN(auto topology, usable_topology(options, allocation));
  HostInventory inventory{processors_only(std::move(topology)), {}, 0};
  return members_of(options, {{allocation.hosts.at(0).name, 0, 0, std::move(inventory)}});
}

Result<PlacedJob> place_members(const spec::Options& options, const alloc::Allocation& allocation,
                                const std::vector<std::uint32_t>& counts, const MemberNeeds& needs,
                                const std::string& cache_folder) {
  const JobRequest request = job_request(options, counts, needs);
  const auto policy = policy_of(request.ranks);
  if (!request.on_devices() && !policy.ok()) return policy.status();
  const auto order = inventory_options(options);
  const alloc::Host& host = allocation.hosts.at(0);
  ClusterHost here{host.name, 0, 0, HostInventory()};
  if (order && options.do_not_launch && !order->devices && described(options)) {
    auto topology = topology::read_this_machine(topology::machine_source(options.environment));
    here.inventory = topology.ok() ? Result<HostInventory>(HostInventory{
                                         processors_only(std::move(*topology)), host.cores, 0})
                                   : Result<HostInventory>(topology.status());
  } else if (order) {
    here.inventory = take_inventory(*order, host.cores, options.environment, cache_folder);
    if (here.inventory.ok() && !options.hosts.empty())
      keep_granted(options.hosts.front(), *here.inventory);
  }
  if (here.inventory.ok()) here.inventory->quota = host.quota;
  return place_on_cluster(options, {std::move(here)}, request);
}

}  // namespace regroup::placement
