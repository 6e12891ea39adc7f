// Grows by a new allocation: work that uses the old one may be under way.
#include "collective/cuda/device_scratch.h"

#include <fmt/format.h>

namespace regroup::collective::cuda {

DeviceScratch::~DeviceScratch() {
  for (const DevicePointer memory : memory_) static_cast<void>(driver_.memory_free(memory));
}

base::Result<DevicePointer> DeviceScratch::reserve(std::size_t bytes) {
  if (bytes <= bytes_) return memory_.empty() ? DevicePointer{0} : memory_.back();
  DevicePointer memory = 0;
  const DriverResult result = driver_.memory_allocate(&memory, bytes);
  if (result != DriverResult::kSuccess)
    return driver_.status(result, fmt::format("sum of gradients: cuMemAlloc of {} bytes", bytes));
  memory_.push_back(memory);
  bytes_ = bytes;
  return memory;
}

}  // namespace regroup::collective::cuda
