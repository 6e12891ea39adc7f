// What the environment that regroup was started in leaves of a machine's GPUs.
#pragma once

#include "base/status.h"
#include "launcher/placement/placement_scorer.h"
#include "launcher/spec/request.h"
#include "launcher/topology/machine.h"

namespace regroup::placement {

// NVIDIA: CUDA_VISIBLE_DEVICES, numbers (in the order of PCI) or uuids, which may be shortened.
// AMD: ROCR_VISIBLE_DEVICES, the same, and, counted within what that leaves, the first that is set
// of HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL. From a number below 0 or
// "NoDevFiles" on nothing is visible, as CUDA and HIP have it. All GPUs if none is set.
// kInvalidArgument names what is no GPU of this machine.
[[nodiscard]] base::Result<GpuSet> visible_gpus(const topology::Machine& machine,
                                                const spec::Environment& own);

}  // namespace regroup::placement
