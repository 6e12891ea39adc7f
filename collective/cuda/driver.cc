// Loads libcuda and words its errors.
#include "collective/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/loader_error.h"

namespace regroup::collective::cuda {

using base::Result;
using base::Status;

std::string text_of(const DeviceUuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i)
    text += fmt::format("{}{:02x}", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                        uuid.bytes[i]);
  return text;
}

Status Driver::status(DriverResult result, const std::string& call) const {
  if (result == DriverResult::kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(result, &name) != DriverResult::kSuccess) name = nullptr;
  if (error_string(result, &text) != DriverResult::kSuccess) text = nullptr;
  std::string message = fmt::format(
      "{}: {} ({})", call, name == nullptr ? fmt::format("CUDA error {}", int(result)) : name,
      text == nullptr ? "unknown to this driver" : text);
  switch (result) {
    case DriverResult::kInvalidValue:
    case DriverResult::kInvalidDevice:
    case DriverResult::kInvalidContext:
      return base::invalid_argument(std::move(message));
    case DriverResult::kOutOfMemory:
      return base::resource_exhausted(std::move(message));
    case DriverResult::kNotInitialized:
    case DriverResult::kNoDevice:
    case DriverResult::kDeviceUnavailable:
    case DriverResult::kNotPermitted:
    case DriverResult::kNotSupported:
      return base::unavailable(std::move(message));
    case DriverResult::kEccUncorrectable:
      return base::data_loss(std::move(message));
    default:
      return base::internal_error(std::move(message));
  }
}

Result<Driver> load_driver(const std::string& library) {
  // Never closed: the driver has threads of its own.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return base::unavailable(fmt::format("no {}: {}", library, base::loader_error()));
  Driver driver;
#define REGROUP_CUDA_FIND(member, symbol, ...)                                         \
  driver.member = reinterpret_cast<decltype(driver.member)>(::dlsym(handle, #symbol)); \
  if (driver.member == nullptr)                                                        \
    return base::unavailable(fmt::format("{} has no {}: the driver is too old", library, #symbol));
  REGROUP_CUDA_FUNCTIONS(REGROUP_CUDA_FIND)
#undef REGROUP_CUDA_FIND
  driver.visible_uuid =
      reinterpret_cast<decltype(driver.visible_uuid)>(::dlsym(handle, "cuDeviceGetUuid_v2"));
  return driver;
}

}  // namespace regroup::collective::cuda
