// A machine for people, in text.
#pragma once

#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topology {

struct ViewOptions {
  bool colours = false;          // escapes of a terminal
  std::vector<int> rank_of_gpu;  // by GPU, the rank on it; -1: none; empty: not asked
};

// The tree of NUMA nodes, switches, GPUs and NICs, the NVLinks, the matrix of class and GB/s, and
// what was guessed.
[[nodiscard]] std::string machine_tree(const Machine& machine, const ViewOptions& options);
[[nodiscard]] std::string machine_matrix(const Machine& machine, const ViewOptions& options);
[[nodiscard]] std::string machine_view(const Machine& machine, const ViewOptions& options);

// What hangs on each node over PCIe, by node: GPUs and NICs last, in the order in which they are
// counted.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> pci_children(const Machine& machine);

// "12 NVSwitches", or without a number where the source does not say it.
[[nodiscard]] std::string nvswitches_text(const Machine& machine);

// A line for each kind of NVLink connection.
[[nodiscard]] std::vector<std::string> gpu_link_lines(const Machine& machine);

}  // namespace regroup::topology
