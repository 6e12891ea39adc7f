// The GPUs of a machine that the environment of regroup makes visible.
#pragma once

#include "base/status.h"
#include "launcher/placement/placement_scorer.h"
#include "launcher/spec/request.h"
#include "launcher/topology/machine.h"

namespace regroup::placement {

// Evaluates these variables; all GPUs if none is set. NVIDIA: CUDA_VISIBLE_DEVICES, a list of
// numbers (in PCI order) or uuids, which may be shortened. AMD: ROCR_VISIBLE_DEVICES, likewise;
// then, counting within the GPUs that it leaves, the first that is set of HIP_VISIBLE_DEVICES,
// CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL. As in CUDA and HIP, a negative number or
// "NoDevFiles" ends the list. kInvalidArgument names an entry that is not a GPU of this machine.
[[nodiscard]] base::Result<GpuSet> visible_gpus(const topology::Machine& machine,
                                                const spec::Environment& own);

}  // namespace regroup::placement
