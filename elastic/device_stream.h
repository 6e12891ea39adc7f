// Copies between a CUDA device and the host on a stream of the caller, each awaited within a
// deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collective/cuda/driver.h"

namespace regroup::elastic {

class DeviceStream {
 public:
  // Loads the driver and, in a calling thread without a current context, makes the primary context
  // of `device` current (nullopt: that of device 0). `stream`: a CUstream of the current context.
  // `deadline`: of a single wait. kUnavailable: there is no driver, or no device. kInvalidArgument:
  // there is no device of this number, or the context of another one is current.
  [[nodiscard]] static base::Result<std::unique_ptr<DeviceStream>> open(std::optional<int> device,
                                                                        void* stream,
                                                                        base::Duration deadline);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // Pins the pages of host memory, so that copies to and from it need no detour and have a
  // deadline. Returns what to pass to cuMemHostUnregister; null: they cannot be pinned, by the
  // limit of locked memory, for example. They must stay mapped.
  [[nodiscard]] void* pin(std::span<std::byte> host) const;
  // Both wait for the work on the stream, copy, and wait for the copy. An error of earlier work on
  // the device appears here: kInternal. kDeadlineExceeded: the device does not get on; everything
  // of it is lost then. Thread: with the same context current. The driver itself copies host memory
  // that is not pinned, without a deadline.
  [[nodiscard]] base::Status copy_to_host(std::span<std::byte> host,
                                          collective::cuda::DevicePointer from) const;
  [[nodiscard]] base::Status copy_to_device(collective::cuda::DevicePointer to,
                                            std::span<const std::byte> host) const;
  // What the agent wants to know of the device of this context.
  struct Device {
    std::string uuid;        // "GPU-..."
    std::uint64_t free = 0;  // bytes
  };
  [[nodiscard]] base::Result<Device> device() const;
  // "GPU-...", or "MIG-..." of a MIG instance: what CUDA_VISIBLE_DEVICES names.
  [[nodiscard]] base::Result<std::string> visible_uuid() const;
  [[nodiscard]] const collective::cuda::Driver& driver() const { return driver_; }
  [[nodiscard]] collective::cuda::Stream stream() const { return stream_; }  // the caller's
  // From now on `stream` is the caller's stream. Its later work begins after what is on the stream
  // before it. Errors are the driver's.
  [[nodiscard]] base::Status change_stream(void* stream);
  // Waits by polling until `event` has fired: kDeadlineExceeded, "GPU 0: WHAT: not done after 60
  // s".
  [[nodiscard]] base::Status wait(collective::cuda::DriverEvent event, const char* what) const;
  [[nodiscard]] collective::cuda::DeviceIndex device_index() const { return device_; }
  [[nodiscard]] base::Duration deadline() const { return deadline_; }
  // False after a wait that took too long: calls that free something would wait without a limit.
  [[nodiscard]] bool answers() const { return answers_; }
  void abandon() const { answers_ = false; }  // another wait for the device took too long
  // For the end of what has memory of the device: waits at most kDrainLimit for the work on the
  // stream. False: answers() is, from now on. After an error of the device no work is under way.
  [[nodiscard]] bool drain() const;
  static constexpr std::chrono::seconds kDrainLimit{5};
  // Waits until what is on the stream now is done.
  [[nodiscard]] base::Status wait(const char* what) const;
  // Ok, or "GPU 0: CALL: NAME OF THE RESULT (...)".
  [[nodiscard]] base::Status check(collective::cuda::DriverResult result,
                                   const std::string& call) const;

 private:
  DeviceStream(const collective::cuda::Driver& driver, void* stream, base::Duration deadline)
      : driver_(driver),
        stream_(static_cast<collective::cuda::Stream>(stream)),
        deadline_(deadline) {}
  [[nodiscard]] base::Status prepare(std::optional<int> device);

  const collective::cuda::Driver driver_;
  collective::cuda::DeviceIndex device_ = 0;
  collective::cuda::Stream stream_;
  const base::Duration deadline_;
  collective::cuda::DriverEvent event_ = nullptr;
  mutable bool answers_ = true;
};

}  // namespace regroup::elastic
