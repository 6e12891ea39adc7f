// Asks the driver what a device can do. The order is that of what a user can mend first.
#include "collective/cuda/viability.h"

#include <fmt/format.h>

namespace regroup::collective::cuda {
namespace {

// "13.0" of 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// 0: the driver knows no such attribute.
int attribute_of(const Driver& driver, DeviceAttribute attribute, DeviceIndex device) {
  int value = 0;
  return driver.device_attribute(&value, attribute, device) == DriverResult::kSuccess ? value : 0;
}

}  // namespace

std::string why_not_cuda(const base::Result<Driver>& loaded, int number, const KernelImage& image) {
  if (!loaded.ok()) return loaded.status().message();
  if (image.bytes.empty()) return "built without nvcc: there are no device kernels";
  const Driver& driver = *loaded;
  const auto failure = [&](DriverResult result, const char* call) {
    return driver.status(result, fmt::format("GPU {}: {}", number, call)).message();
  };
  if (const auto result = driver.init(0); result != DriverResult::kSuccess)
    return failure(result, "cuInit");
  DeviceIndex device = 0;
  if (const auto result = driver.device_get(&device, number); result != DriverResult::kSuccess)
    return failure(result, "cuDeviceGet");
  int version = 0;
  if (const auto result = driver.driver_version(&version); result != DriverResult::kSuccess)
    return failure(result, "cuDriverGetVersion");
  // Programs of a toolkit run on each driver of its major version; PTX: below.
  if (version / 1000 < image.toolkit / 1000)
    return fmt::format("the driver is one of CUDA {}, the device kernels need {}.0",
                       version_text(version), image.toolkit / 1000);
  const int capability =
      10 * attribute_of(driver, DeviceAttribute::kComputeCapabilityMajor, device) +
      attribute_of(driver, DeviceAttribute::kComputeCapabilityMinor, device);
  if (capability < KernelImage::kLeastCapability)
    return fmt::format("GPU {} has compute capability {}.{}, the device kernels need {}.{}", number,
                       capability / 10, capability % 10, KernelImage::kLeastCapability / 10,
                       KernelImage::kLeastCapability % 10);
  // Chips that are newer than the programs in the image get its PTX, which the driver compiles only
  // if it is of the toolkit's minor version, too.
  if (capability >= KernelImage::kFirstOfPtx && version < image.toolkit)
    return fmt::format("the driver is one of CUDA {}, the device kernels need {} on GPU {}",
                       version_text(version), version_text(image.toolkit), number);
  if (attribute_of(driver, DeviceAttribute::kVirtualMemoryManagementSupported, device) == 0 ||
      attribute_of(driver, DeviceAttribute::kPosixFileDescriptorSupported, device) == 0)
    return fmt::format("GPU {} cannot share memory by file descriptors", number);
  return "";
}

std::string why_not_between(const Driver& driver, std::span<const int> numbers) {
  for (const int reader : numbers) {
    for (const int other : numbers) {
      if (reader == other) continue;
      DeviceIndex devices[2] = {};
      int can = 0;
      const bool known =
          driver.device_get(&devices[0], reader) == DriverResult::kSuccess &&
          driver.device_get(&devices[1], other) == DriverResult::kSuccess &&
          driver.device_can_access_peer(&can, devices[0], devices[1]) == DriverResult::kSuccess;
      if (!known || can == 0)
        return fmt::format("GPU {} and GPU {} cannot read each other", reader, other);
    }
  }
  return "";
}

}  // namespace regroup::collective::cuda
