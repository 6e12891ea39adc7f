// Puts a Machine together, and finds its paths as NCCL does.
#pragma once

#include <cstdint>
#include <string_view>

#include "launcher/topology/machine.h"

namespace regroup::topology {

// Each adds the thing and its node, and returns the node.
std::uint32_t add_gpu(Machine& machine, Gpu gpu);
std::uint32_t add_nic(Machine& machine, Nic nic);
std::uint32_t add_numa(Machine& machine, NumaNode numa);
std::uint32_t add_pci_switch(Machine& machine, Switch pci);
std::uint32_t add_plain_node(Machine& machine, NodeKind kind);  // an NVLink domain, a card

void add_link(Machine& machine, Link link);

// Links all NUMA nodes with each other that no link joins yet, at the speed of `machine.vendor`'s
// processors.
void link_numas(Machine& machine, double gbytes);

// Counts GPUs in the order of their numbers. Before find_paths().
void order_gpus(Machine& machine);

// Fills in `paths` and `direct`: fewest hops, among those the widest; through a GPU over NVLink one
// hop at most. Classes as in NCCL; GPU to GPU through an Intel processor loses a sixth; to a NIC
// over the GPU next to it (PXN) where that is wider or avoids the processors. A NIC that is down
// has none (kDis). O(ends x links).
void find_paths(Machine& machine);

// GB/s of a NIC's wire; 0: of no NIC here is it known. One that nobody tells comes after all others
// that are up, and counts 10 Gb/s at most, as in NCCL.
[[nodiscard]] double wire_gbytes(const Machine& machine, std::size_t nic);

// GB/s each way of one NVLink of this architecture ("sm90"), or of one xGMI link ("gfx942").
[[nodiscard]] double link_gbytes(std::string_view arch);

// GB/s of a PCIe link: transfers per second in 10^9 ("16 GT/s" is 16) and lanes; 0: generation 3,
// 16 lanes.
[[nodiscard]] double pci_gbytes(double gigatransfers, std::uint32_t lanes);

// GB/s between two sockets or NUMA nodes, by vendor, family and model of CPUID (0: not known).
[[nodiscard]] double numa_gbytes(std::string_view vendor, int family, int model);

}  // namespace regroup::topology
