// From GPUs of hosts to ranks: their order, and the NIC, NUMA node and processors near each.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "launcher/place/gang.h"

namespace regroup::launcher {

// GPUs of each part in the order of its fastest ring: a part's last and the next part's first are neighbours.
[[nodiscard]] std::vector<std::uint32_t> ring_order(Judges& judges, const HostPart& part, Reach reach);

// NICs nearest to a GPU, or to a NUMA node, all that are as near as the best, by rising number.
[[nodiscard]] std::vector<std::uint32_t> nearest_nics(const Machine& machine, std::uint32_t end);

// Ranks of the sets on `parts`, set after set. `near_nics`: neighbours in rank are at different NICs instead.
[[nodiscard]] std::vector<DeviceSpot> ranks_of(Judges& judges, const std::vector<HostPart>& parts,
                                               const ResourceSet& set, Reach reach, bool near_nics);

// Adds ranks of `hubs` on hosts of `allocation`, each where the busiest NIC of the job stays least busy.
void add_hubs(const Fabric& fabric, const std::vector<HostShare>& allocation,
              const std::vector<HubRole>& hubs, std::vector<DeviceSpot>& ranks);

// Gives each rank whole cores of its NUMA node: `set.cpus` shared by its set, or an equal share of those that
// the allocation has there; with more ranks than cores they share all. kResourceExhausted: there are not so
// many.
[[nodiscard]] core::Status give_cpus(const Fabric& fabric, const std::vector<HostShare>& allocation,
                                     const ResourceSet& set, std::vector<DeviceSpot>& ranks);

// The order in which sets are given up while `least` are left.
[[nodiscard]] std::vector<std::uint32_t> give_up_order(Judges& judges, const std::vector<DeviceSpot>& ranks,
                                                       std::uint32_t sets, std::uint32_t least);

}  // namespace regroup::launcher
