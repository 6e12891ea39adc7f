// The check of the GPU of this process before its member is ready: its arithmetic, within a
// deadline. docs/design/health.md.
#pragma once

#include <optional>

#include "base/clock.h"
#include "collective/cuda/device_kernels.h"
#include "proto/device_health.h"

namespace regroup::elastic {

// Checks the GPU of the context that is current in this thread, which must be `device`; without
// one, the primary context of `device` becomes current. `stream`: a CUstream of the caller, whose
// work is awaited first. `kernels`: of that context; null: they are loaded. `wait`: the deadline of
// a single wait for the GPU. Takes about 0.1 s; driver calls that hang have no deadline.
// Faults are facts of NVML (nvml_faults.h), wrong bits of a known product, and no answer within
// `wait` on a stream that has nothing else to do. What cannot be checked is no fault: empty if
// there is no driver, no such device, an error of the driver or a caller's stream that does not
// come to its end.
[[nodiscard]] std::optional<proto::DeviceHealth> check_device(
    int device, void* stream, const collective::cuda::DeviceKernels* kernels, base::Duration wait);

// True if a context of CUDA is current in this thread, so that its GPU is the one that it uses.
[[nodiscard]] bool has_device_context();

}  // namespace regroup::elastic
