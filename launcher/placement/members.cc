// Converts a placement to the forms that agents and MPI programs need.
#include "launcher/placement/members.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace regroup::placement {

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

}  // namespace regroup::placement
