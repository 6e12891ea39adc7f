// Gradients and sums of a session on a CUDA device, over host memory: the data plane "staged".
// The caller fills a leaf on the device, which is then copied to this member's buffer in the arena;
// the sum over all leaves is copied back. So the arithmetic, and what a member's death leaves
// behind, are those of the host.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::elastic {

class DeviceStaging {
 public:
  struct Place {
    int device = 0;
    void* stream = nullptr;  // a CUstream of the device's primary context
  };
  // Loads the driver, makes the primary context of the device current in the calling thread if it
  // has none, and allocates a leaf and a sum of `bytes` bytes there. `deadline`: of a single wait
  // for the device. kUnavailable: there is no driver or no such device; kResourceExhausted: not
  // enough memory there.
  [[nodiscard]] static base::Result<std::unique_ptr<DeviceStaging>> open(const Place& place,
                                                                         std::size_t bytes,
                                                                         base::Duration deadline);
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Pins host memory, so that copies to and from it need no detour. Memory that cannot be pinned
  // works as well, more slowly. It must stay mapped as long as this object.
  void pin(std::span<std::byte> host);
  // The leaf, in memory of the device.
  [[nodiscard]] std::span<std::byte> leaf() const;
  // Copies the leaf to `host` behind the work on the stream, and waits for it. An error of earlier
  // work on the device appears here: kInternal. kDeadlineExceeded.
  [[nodiscard]] base::Status copy_leaf_to(std::span<std::byte> host) const;
  // Copies `host` to the sum, in memory of the device, and waits until `host` has been read. The
  // sum is valid until the next call.
  [[nodiscard]] base::Result<std::span<const std::byte>> copy_sum(
      std::span<const std::byte> host) const;

 private:
  DeviceStaging(const collective::cuda::Driver& driver, const Place& place, std::size_t bytes,
                base::Duration deadline)
      : driver_(driver),
        device_(place.device),
        stream_(static_cast<collective::cuda::Stream>(place.stream)),
        bytes_(bytes),
        deadline_(deadline) {}
  [[nodiscard]] base::Status allocate();
  [[nodiscard]] base::Status check(collective::cuda::DriverResult result,
                                   const std::string& call) const;
  // Waits until the work on the stream is done.
  [[nodiscard]] base::Status wait(const std::string& what) const;

  const collective::cuda::Driver driver_;
  const int device_;
  const collective::cuda::Stream stream_;
  const std::size_t bytes_;
  const base::Duration deadline_;
  collective::cuda::DevicePointer leaf_ = 0;
  collective::cuda::DevicePointer sum_ = 0;
  collective::cuda::DriverEvent event_ = nullptr;
  std::vector<void*> pinned_;
};

}  // namespace regroup::elastic
