// Device memory for one leaf and one sum, and the host memory that they are copied through.
#include "elastic/device_staging.h"

#include <fmt/format.h>

namespace regroup::elastic {

using base::Result;
using collective::cuda::DevicePointer;

namespace {

std::byte* address_of(DevicePointer pointer) { return reinterpret_cast<std::byte*>(pointer); }

}  // namespace

Result<std::unique_ptr<DeviceStaging>> DeviceStaging::open(std::unique_ptr<DeviceStream> stream,
                                                           std::size_t bytes, void* sum) {
  std::unique_ptr<DeviceStaging> out(new DeviceStaging(std::move(stream), bytes));
  const std::string call = fmt::format("cuMemAlloc of {} bytes for a gradient", bytes);
  const DeviceStream& device = *out->stream_;
  REGROUP_RETURN_IF_ERROR(device.check(device.driver().memory_allocate(&out->leaf_, bytes), call));
  if (sum != nullptr) {
    out->sum_ = reinterpret_cast<DevicePointer>(sum);
    out->owns_sum_ = false;
    return out;
  }
  REGROUP_RETURN_IF_ERROR(device.check(device.driver().memory_allocate(&out->sum_, bytes), call));
  return out;
}

// After an error of the device these calls fail, and the end of the process frees everything.
DeviceStaging::~DeviceStaging() {
  if (!stream_->drain()) return;
  const collective::cuda::Driver& driver = stream_->driver();
  for (void* host : pinned_) (void)driver.host_unregister(host);
  if (leaf_ != 0) (void)driver.memory_free(leaf_);
  if (owns_sum_ && sum_ != 0) (void)driver.memory_free(sum_);
}

void DeviceStaging::pin(std::span<std::byte> host) {
  if (void* const pinned = stream_->pin(host); pinned != nullptr) pinned_.push_back(pinned);
}

std::span<std::byte> DeviceStaging::leaf() const { return {address_of(leaf_), bytes_}; }

std::span<std::byte> DeviceStaging::sum() const { return {address_of(sum_), bytes_}; }

Result<std::span<const std::byte>> DeviceStaging::copy_sum(std::span<const std::byte> host) const {
  REGROUP_RETURN_IF_ERROR(stream_->copy_to_device(sum_, host));
  return std::span<const std::byte>(address_of(sum_), bytes_);
}

}  // namespace regroup::elastic
