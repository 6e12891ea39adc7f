// Copies between a CUDA device and the host on a stream of the caller, each awaited within a
// deadline.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::elastic {

class DeviceStream {
 public:
  // Loads the driver and, in a calling thread without a current context, makes the primary context
  // of `device` current. `stream`: a CUstream of the current context. `deadline`: of a single wait.
  // kUnavailable: there is no driver, or no such device.
  [[nodiscard]] static base::Result<std::unique_ptr<DeviceStream>> open(int device, void* stream,
                                                                        base::Duration deadline);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // Both copy behind the work on the stream, and wait for the copy. An error of earlier work on the
  // device appears here: kInternal. kDeadlineExceeded. Thread: with the same context current.
  [[nodiscard]] base::Status copy_to_host(std::span<std::byte> host,
                                          collective::cuda::DevicePointer from) const;
  [[nodiscard]] base::Status copy_to_device(collective::cuda::DevicePointer to,
                                            std::span<const std::byte> host) const;
  [[nodiscard]] const collective::cuda::Driver& driver() const { return driver_; }
  // Ok, or "GPU 0: CALL: NAME OF THE RESULT (...)".
  [[nodiscard]] base::Status check(collective::cuda::DriverResult result,
                                   const std::string& call) const;

 private:
  DeviceStream(const collective::cuda::Driver& driver, int device, void* stream,
               base::Duration deadline)
      : driver_(driver),
        device_(device),
        stream_(static_cast<collective::cuda::Stream>(stream)),
        deadline_(deadline) {}
  [[nodiscard]] base::Status prepare();
  [[nodiscard]] base::Status wait(const char* what) const;

  const collective::cuda::Driver driver_;
  const int device_;
  const collective::cuda::Stream stream_;
  const base::Duration deadline_;
  collective::cuda::DriverEvent event_ = nullptr;
};

}  // namespace regroup::elastic
