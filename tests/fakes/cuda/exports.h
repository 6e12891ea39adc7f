// Declares all functions of the product's table as what the library exports: a definition with
// other parameters does not compile.
#pragma once

#include "tests/fakes/cuda/results.h"

#define REGROUP_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace regroup::fakes::cuda {

// NOLINTBEGIN(readability-identifier-naming)
#define REGROUP_CUDA_EXPORT(member, symbol, ...) \
  REGROUP_FAKE_EXPORT DriverResult symbol(__VA_ARGS__);
REGROUP_CUDA_FUNCTIONS(REGROUP_CUDA_EXPORT)
#undef REGROUP_CUDA_EXPORT
REGROUP_FAKE_EXPORT DriverResult cuDeviceGetUuid_v2(DeviceUuid* uuid, DeviceIndex device);
// NOLINTEND(readability-identifier-naming)

}  // namespace regroup::fakes::cuda
