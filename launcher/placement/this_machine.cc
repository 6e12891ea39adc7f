// With --do-not-launch a description replaces the machine, so that a user can see where members
// would run on another one.
#include "launcher/placement/this_machine.h"

#include <algorithm>
#include <utility>

#include "launcher/topology/read_topology.h"

namespace regroup::placement {
namespace {

using base::Result;
using base::Status;

Result<HostInventory> described_inventory(const spec::JobSpec& spec, std::vector<int> cores) {
  REGROUP_ASSIGN_OR_RETURN(auto topology,
                           topology::read_this_machine(topology::machine_source(spec.environment)));
  HostInventory out{{}, std::move(cores)};
  out.machine.processors = std::move(topology);
  return out;
}

Status take_described_machine(const spec::Environment& own, alloc::Allocation& allocation) {
  REGROUP_ASSIGN_OR_RETURN(const auto topology,
                           topology::read_this_machine(topology::machine_source(own)));
  alloc::Host& host = allocation.hosts.at(0);
  host.cores.clear();
  for (const topology::HwThread& thread : topology.threads) host.cores.push_back(thread.os);
  host.slots = static_cast<std::uint32_t>(topology::parts_of(topology, spec::Unit::kCore).size());
  return {};
}

}  // namespace

bool is_described(const spec::JobSpec& spec) {
  return spec.do_not_launch && (spec.environment.contains("HWLOC_XMLFILE") ||
                                spec.environment.contains("HWLOC_SYNTHETIC"));
}

Result<alloc::Allocation> usable_allocation(const spec::JobSpec& spec, alloc::Allocation here) {
  alloc::Host& host = here.hosts.at(0);
  if (is_described(spec)) {
    REGROUP_RETURN_IF_ERROR(take_described_machine(spec.environment, here));
    host.quota = 0;
  }
  const spec::MapBy& map = spec.mapping.map;
  const bool threads = map.hwthread_cpus.value_or(map.kind == spec::MapBy::Kind::kUnit &&
                                                  map.unit == spec::Unit::kHwThread);
  if (threads) host.slots = static_cast<std::uint32_t>(host.cores.size());
  if (host.quota > 0) host.slots = std::min(host.slots, host.quota);
  return here;
}

ClusterHost this_machine(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                         const std::string& cache_folder) {
  const alloc::Host& host = allocation.hosts.at(0);
  const auto order = inventory_options(spec);
  ClusterHost out{host.name, 0, 0, HostInventory()};
  if (order && !order->devices && is_described(spec)) {
    out.inventory = described_inventory(spec, host.cores);
  } else if (order) {
    out.inventory = take_inventory(*order, host.cores, spec.environment, cache_folder);
    if (out.inventory.ok() && !spec.hosts.empty()) keep_granted(spec.hosts.front(), *out.inventory);
  }
  if (out.inventory.ok()) out.inventory->quota = host.quota;
  return out;
}

}  // namespace regroup::placement
