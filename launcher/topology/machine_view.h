// Prints a machine as text for the user.
#pragma once

#include <string>
#include <vector>

#include "launcher/topology/machine.h"

namespace regroup::topology {

struct ViewOptions {
  bool colours = false;          // use terminal escape sequences
  std::vector<int> rank_of_gpu;  // the rank on each GPU; -1: none; empty: do not print ranks
};

// machine_tree(): NUMA nodes, switches, GPUs and NICs. machine_matrix(): class and GB/s of each
// pair. machine_view(): both, with the NVLinks and Machine::guesses.
[[nodiscard]] std::string machine_tree(const Machine& machine, const ViewOptions& options);
[[nodiscard]] std::string machine_matrix(const Machine& machine, const ViewOptions& options);
[[nodiscard]] std::string machine_view(const Machine& machine, const ViewOptions& options);

// For each node, the nodes directly below it on PCIe: GPUs and NICs last, in ascending order.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> pci_children(const Machine& machine);

// "12 NVSwitches", or "NVSwitches" if the number is unknown.
[[nodiscard]] std::string nvswitches_text(const Machine& machine);

// One line for each kind of NVLink connection.
[[nodiscard]] std::vector<std::string> gpu_link_lines(const Machine& machine);

}  // namespace regroup::topology
