// A fingerprint of a machine's devices, read without starting any device: says whether a cached
// description of the machine is still valid.
#pragma once

#include <string>

#include "launcher/topology/sysfs.h"

namespace regroup::topology {

// If two results are equal, discover_machine() finds the same devices. One line for each: PCI
// device; device node of a GPU that this process may read and write (by file mode and device
// control group, ignoring CUDA_VISIBLE_DEVICES and similar variables); version of NVIDIA's driver;
// MIG instance; network card, with whether it is up and has an address. Opens no file that would
// start a GPU. Any thread.
[[nodiscard]] std::string device_state(const SysfsRoots& roots);

}  // namespace regroup::topology
