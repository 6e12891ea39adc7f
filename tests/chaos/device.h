// Memory of GPU 0, by calls of the driver that copy only: kernels need another compiler.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "collective/cuda/driver.h"

namespace chaos {

class Device {
 public:
  // Makes the primary context of GPU 0 current.
  [[nodiscard]] static regroup::base::Result<Device> open() {
    REGROUP_ASSIGN_OR_RETURN(const auto driver, regroup::collective::cuda::load_driver());
    Device out(driver);
    regroup::collective::cuda::Context context = nullptr;
    REGROUP_RETURN_IF_ERROR(driver.status(driver.init(0), "cuInit"));
    REGROUP_RETURN_IF_ERROR(
        driver.status(driver.primary_context_retain(&context, 0), "cuDevicePrimaryCtxRetain"));
    REGROUP_RETURN_IF_ERROR(driver.status(driver.context_set(context), "cuCtxSetCurrent"));
    REGROUP_RETURN_IF_ERROR(driver.status(
        driver.stream_create(&out.stream_, regroup::collective::cuda::kNonBlockingStream, 0),
        "cuStreamCreate"));
    return out;
  }
  [[nodiscard]] void* stream() const { return stream_; }
  // Returns once `from` may be written.
  [[nodiscard]] regroup::base::Status write(std::span<std::byte> to, const void* from) const {
    REGROUP_RETURN_IF_ERROR(driver_.status(
        driver_.copy_to_device(reinterpret_cast<Pointer>(to.data()), from, to.size(), stream_),
        "cuMemcpyHtoDAsync"));
    return driver_.status(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
  }
  [[nodiscard]] regroup::base::Status read(void* to, std::span<const std::byte> from) const {
    REGROUP_RETURN_IF_ERROR(driver_.status(
        driver_.copy_to_host(to, reinterpret_cast<Pointer>(from.data()), from.size(), stream_),
        "cuMemcpyDtoHAsync"));
    return driver_.status(driver_.stream_synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  using Pointer = regroup::collective::cuda::DevicePointer;
  explicit Device(const regroup::collective::cuda::Driver& driver) : driver_(driver) {}

  regroup::collective::cuda::Driver driver_;
  regroup::collective::cuda::Stream stream_ = nullptr;
};

}  // namespace chaos
