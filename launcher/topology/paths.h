// Adds nodes and links to a Machine, and finds its paths as NCCL does.
#pragma once

#include <cstdint>
#include <string_view>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// Each adds a device and its node, and returns the index of the node.
std::uint32_t add_gpu(Machine& machine, Gpu gpu);
std::uint32_t add_nic(Machine& machine, Nic nic);
std::uint32_t add_numa(Machine& machine, NumaNode numa);
std::uint32_t add_pci_switch(Machine& machine, Switch pci);
std::uint32_t add_plain_node(Machine& machine, NodeKind kind);  // an NVLink domain, a card

void add_link(Machine& machine, Link link);

// Links each pair of NUMA nodes that has no link yet, with the speed of `machine.vendor`'s
// processors.
void link_numas(Machine& machine, double gbytes);

// Sorts the GPUs by their numbers. Call before find_paths().
void order_gpus(Machine& machine);

// Fills in `paths` and `direct` as NCCL does: the widest of the paths with the fewest hops. A path
// may pass through one GPU by NVLink. A path between GPUs through an Intel processor has a sixth
// less bandwidth. A path to a NIC goes over the GPU next to the NIC (PXN) if that is wider or
// avoids the processors. A NIC that is down has no paths (kDis). O(ends x links).
void find_paths(Machine& machine);

// GB/s of a NIC's port; 0: unknown for all NICs of the machine. A port of unknown speed is taken to
// be slower than all others that are up, and at most 10 Gb/s, as in NCCL.
[[nodiscard]] double wire_gbytes(const Machine& machine, std::size_t nic);

// GB/s each way of one NVLink of this architecture ("sm90"), or of one xGMI link ("gfx942").
[[nodiscard]] double link_gbytes(std::string_view arch);

// GB/s of a PCIe link: transfers per second in 10^9 ("16 GT/s" is 16) and lanes; 0: generation 3,
// 16 lanes.
[[nodiscard]] double pci_gbytes(double gigatransfers, std::uint32_t lanes);

// GB/s between two sockets or NUMA nodes, by vendor, family and model of CPUID (0: not known).
[[nodiscard]] double numa_gbytes(std::string_view vendor, int family, int model);

}  // namespace regroup::topology
