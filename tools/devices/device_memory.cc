// cuMemCreate without a context, as an H200 has shown to work (tests/gpu/truths.cc).
#include "tools/devices/device_memory.h"

#include <fmt/format.h>

#include <utility>

namespace regroup::devices {

using base::Result;
using base::Status;
using collective::cuda::Allocation;
using collective::cuda::AllocationProperties;
using collective::cuda::DeviceAttribute;
using collective::cuda::DeviceIndex;
using collective::cuda::DriverResult;

Status DeviceMemory::load() {
  if (loaded_) return *loaded_;
  auto driver = collective::cuda::load_driver(library_);
  loaded_ = driver.status();
  if (driver.ok()) {
    driver_ = *driver;
    loaded_ = driver_.status(driver_.init(0), "cuInit");
  }
  return *loaded_;
}

Result<DeviceIndex> DeviceMemory::find(const std::string& gpu) const {
  int count = 0;
  REGROUP_RETURN_IF_ERROR(driver_.status(driver_.device_count(&count), "cuDeviceGetCount"));
  for (DeviceIndex device = 0; device < count; ++device) {
    collective::cuda::DeviceUuid uuid{};
    if (driver_.device_uuid(&uuid, device) == DriverResult::kSuccess &&
        collective::cuda::text_of(uuid) == gpu)
      return device;
  }
  return base::unavailable(fmt::format(
      "the driver does not show {} to regroup-devices, which sees {} GPUs", gpu, count));
}

DeviceMemory::Answer DeviceMemory::allocate(const proto::AllocateDeviceMemory& wanted) {
  Answer answer;
  answer.memory.request = wanted.request;
  answer.memory.bytes = wanted.bytes;
  Status status = load();
  if (status.ok()) {
    const auto device = find(wanted.gpu);
    status = device.ok() ? create(*device, &answer) : device.status();
  }
  if (!status.ok()) answer.memory.why = status.message();
  answer.memory.full = status.code() == base::Code::kResourceExhausted;
  return answer;
}

Status DeviceMemory::create(DeviceIndex device, Answer* answer) const {
  answer->memory.device = static_cast<std::uint32_t>(device);
  const auto has = [&](DeviceAttribute attribute) {
    int value = 0;
    return driver_.device_attribute(&value, attribute, device) == DriverResult::kSuccess &&
           value != 0;
  };
  if (!has(DeviceAttribute::kPosixFileDescriptorSupported))
    return base::unavailable(
        fmt::format("GPU {} cannot export memory as a file descriptor", device));
  AllocationProperties properties;
  properties.location.device = device;
  properties.flags.gpu_direct_rdma = has(DeviceAttribute::kGpuDirectRdmaWithVmmSupported) ? 1 : 0;
  const auto check = [&](DriverResult result, const std::string& call) {
    return driver_.status(result, fmt::format("GPU {}: {}", device, call));
  };
  std::size_t unit = 0;
  REGROUP_RETURN_IF_ERROR(
      check(driver_.granularity(&unit, &properties, collective::cuda::kMinimumGranularity),
            "cuMemGetAllocationGranularity"));
  std::uint64_t& bytes = answer->memory.bytes;
  bytes = (bytes + unit - 1) / unit * unit;
  Allocation allocation = 0;
  REGROUP_RETURN_IF_ERROR(check(driver_.allocation_create(&allocation, bytes, &properties, 0),
                                fmt::format("cuMemCreate of {} bytes", bytes)));
  int descriptor = -1;
  const Status exported = check(
      driver_.allocation_export(&descriptor, allocation, collective::cuda::kPosixFileDescriptor, 0),
      "cuMemExportToShareableHandle");
  // The descriptor keeps the memory.
  (void)driver_.allocation_release(allocation);
  if (exported.ok()) answer->descriptor.reset(descriptor);
  return exported;
}

}  // namespace regroup::devices
