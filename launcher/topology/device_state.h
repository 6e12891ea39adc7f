// The state of a machine's devices that may change while it runs, read without waking any device.
#pragma once

#include <string>

#include "launcher/topology/sysfs.h"

namespace regroup::topology {

// A line for each: devices on PCI; device nodes of GPUs that this process may read and write, as
// file modes and its device control group leave them, whatever CUDA_VISIBLE_DEVICES and its like
// say; the version of NVIDIA's driver; MIG instances; network cards, those that are up and those
// with an address. Two that are equal: devices that were found then are those that are found now.
// Nothing is opened that would start a GPU. Any thread.
[[nodiscard]] std::string device_state(const SysfsRoots& roots);

}  // namespace regroup::topology
