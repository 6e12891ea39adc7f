// What Linux says of a machine's devices, below a root that may be a recorded tree.
#pragma once

#include <string>

#include "launcher/topo/machine_builder.h"

namespace regroup::launcher {

struct SysfsRoots {
  std::string sys = "/sys";
  std::string cpuinfo = "/proc/cpuinfo";
};

// NUMA nodes, GPUs with their place on PCIe, AMD's xGMI (kfd), network cards: InfiniBand, RoCE, EFA and
// Ethernet with speed and NUMA node. What a file does not say is left as not known: there is always an
// answer.
[[nodiscard]] MachineParts read_sysfs(const SysfsRoots& roots);

}  // namespace regroup::launcher
