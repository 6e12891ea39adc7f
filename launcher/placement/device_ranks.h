// Turns the chosen GPUs into ranks: their order, and the NICs, NUMA node and processors of each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/gang.h"

namespace regroup::placement {

// The GPUs of `part` in the order of its fastest ring; the last GPU of a part and the first of the
// next part are neighbours.
[[nodiscard]] std::vector<std::uint32_t> ring_order(PlacementScorers& scorers, const HostPart& part,
                                                    RingScope reach);

// The NICs nearest to a GPU or NUMA node `end` (all that are equally near), ascending.
[[nodiscard]] std::vector<std::uint32_t> nearest_nics(const topology::Machine& machine,
                                                      std::uint32_t end);

// The ranks of the sets on `parts`, set after set. `near_nics`: order them so that consecutive
// ranks have different NICs.
[[nodiscard]] std::vector<DeviceSlot> ranks_of(PlacementScorers& scorers,
                                               const std::vector<HostPart>& parts,
                                               const ResourceSet& set, RingScope reach,
                                               bool near_nics);

// Adds the ranks of `servers` on hosts of `allocation`, each where it adds least to the load of the
// job's busiest NIC.
void add_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                 const std::vector<ServerRole>& servers, std::vector<DeviceSlot>& ranks);

// Reorders `ranks` so that consecutive sets (of `each` ranks) are on different hosts.
[[nodiscard]] std::vector<DeviceSlot> dealt_over_hosts(std::vector<DeviceSlot> ranks,
                                                       std::uint32_t each);

// Gives each rank whole cores of its NUMA node: cores[rank] cores, or, if that is 0, an equal share
// of the remaining cores of the allocation there; if these are fewer than such ranks, they share
// all. kResourceExhausted: too few cores.
[[nodiscard]] base::Status give_cpus(const topology::Fabric& fabric,
                                     const std::vector<HostShare>& allocation,
                                     const std::vector<std::uint32_t>& cores,
                                     std::vector<DeviceSlot>& ranks);

// Moves each rank without a GPU that requests `cores` to the NUMA node of its host with the most
// free cores, unless the NUMA node of its NIC has enough.
void settle_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                    const std::vector<std::uint32_t>& cores, std::vector<DeviceSlot>& ranks);

// Removes from `left` all GPUs with fewer than `least` cores near them. Returns their number.
std::size_t leave_small_nodes(const topology::Fabric& fabric, std::uint32_t least,
                              std::vector<HostShare>& left);

// For each NUMA node whose ranks request more `cores` than it has, removes the GPUs near it from
// `left`, except those of the first ranks for which it has cores. Returns a sentence for each such
// node.
[[nodiscard]] std::vector<std::string> leave_crowded_nodes(const topology::Fabric& fabric,
                                                           const std::vector<std::uint32_t>& cores,
                                                           const std::vector<DeviceSlot>& ranks,
                                                           std::vector<HostShare>& left);

// The order in which an elastic job releases sets until `least` remain.
[[nodiscard]] std::vector<std::uint32_t> shrink_order(PlacementScorers& scorers,
                                                      const std::vector<DeviceSlot>& ranks,
                                                      std::uint32_t sets, std::uint32_t least);

}  // namespace regroup::placement
