// From GPUs of hosts to ranks: their order, and the NIC, NUMA node and processors near each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/gang.h"

namespace regroup::placement {

// GPUs of each part in the order of its fastest ring: a part's last and the next part's first are
// neighbours.
[[nodiscard]] std::vector<std::uint32_t> ring_order(PlacementScorers& scorers, const HostPart& part,
                                                    RingScope reach);

// NICs nearest to a GPU, or to a NUMA node, all that are as near as the best, by rising number.
[[nodiscard]] std::vector<std::uint32_t> nearest_nics(const topology::Machine& machine,
                                                      std::uint32_t end);

// Ranks of the sets on `parts`, set after set. `near_nics`: neighbours in rank are at different
// NICs instead.
[[nodiscard]] std::vector<DeviceSlot> ranks_of(PlacementScorers& scorers,
                                               const std::vector<HostPart>& parts,
                                               const ResourceSet& set, RingScope reach,
                                               bool near_nics);

// Adds ranks of `servers` on hosts of `allocation`, each where the busiest NIC of the job stays
// least busy.
void add_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                 const std::vector<ServerRole>& servers, std::vector<DeviceSlot>& ranks);

// The same, neighbours in rank on different hosts; ranks of one set, `each` of them, stay together.
[[nodiscard]] std::vector<DeviceSlot> dealt_over_hosts(std::vector<DeviceSlot> ranks,
                                                       std::uint32_t each);

// Gives each rank whole cores of its NUMA node: `cores`, by rank, or where that is 0 an equal share
// of those that the others leave of what the allocation has there; with more such ranks than cores
// they share all. kResourceExhausted: there are not so many.
[[nodiscard]] base::Status give_cpus(const topology::Fabric& fabric,
                                     const std::vector<HostShare>& allocation,
                                     const std::vector<std::uint32_t>& cores,
                                     std::vector<DeviceSlot>& ranks);

// A rank without a GPU that requests `cores` goes to the NUMA node of its host with the most cores
// left, unless the node of its NIC has enough.
void settle_servers(const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
                    const std::vector<std::uint32_t>& cores, std::vector<DeviceSlot>& ranks);

// Takes GPUs away from `left` that have fewer than `least` cores near them. How many.
std::size_t leave_small_nodes(const topology::Fabric& fabric, std::uint32_t least,
                              std::vector<HostShare>& left);

// Where ranks near a NUMA node ask for more `cores` than it has, takes away from `left` the GPUs
// near it, but for those of the first ranks that it has cores for. A sentence for each such node.
[[nodiscard]] std::vector<std::string> leave_crowded_nodes(const topology::Fabric& fabric,
                                                           const std::vector<std::uint32_t>& cores,
                                                           const std::vector<DeviceSlot>& ranks,
                                                           std::vector<HostShare>& left);

// The order in which an elastic job releases sets until `least` remain.
[[nodiscard]] std::vector<std::uint32_t> shrink_order(PlacementScorers& scorers,
                                                      const std::vector<DeviceSlot>& ranks,
                                                      std::uint32_t sets, std::uint32_t least);

}  // namespace regroup::placement
