// Memory of a device for partial sums, which outlives the generations that use it: freeing memory
// waits for all work of the context, so a sum and the end of a generation must not.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::collective::cuda {

// Used by one thread, with one context current.
class DeviceScratch {
 public:
  explicit DeviceScratch(const Driver& driver) : driver_(driver) {}
  // Frees everything, and so waits for the device.
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Returns at least `bytes` bytes, valid as long as this object. A later call may return the same
  // memory: it is for one sum at a time. kResourceExhausted: the device lacks memory.
  [[nodiscard]] base::Result<DevicePointer> reserve(std::size_t bytes);
  // Frees nothing at the end: for a device that does not answer.
  void abandon() { memory_.clear(); }

 private:
  const Driver driver_;
  std::vector<DevicePointer> memory_;  // the last one is the largest
  std::size_t bytes_ = 0;              // of the last one
};

}  // namespace regroup::collective::cuda
