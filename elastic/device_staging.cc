// Copies between a device and the arena. A copy is awaited by polling: a blocking wait for a device
// that hangs would have no deadline.
#include "elastic/device_staging.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace regroup::elastic {

using base::Result;
using base::Status;
using collective::cuda::DevicePointer;
using collective::cuda::DriverResult;

namespace {

constexpr auto kSpin = std::chrono::microseconds(200);  // polls without sleeping for as long
constexpr auto kSleep = std::chrono::microseconds(50);

std::byte* address_of(DevicePointer pointer) { return reinterpret_cast<std::byte*>(pointer); }

}  // namespace

Result<std::unique_ptr<DeviceStaging>> DeviceStaging::open(const Place& place, std::size_t bytes,
                                                           base::Duration deadline) {
  const auto loaded = collective::cuda::load_driver();
  if (!loaded.ok())
    return Status(loaded.code(), "Options::memory kDevice: " + loaded.status().message());
  const collective::cuda::Driver& driver = *loaded;
  std::unique_ptr<DeviceStaging> out(new DeviceStaging(driver, place, bytes, deadline));
  REGROUP_RETURN_IF_ERROR(out->allocate());
  return out;
}

Status DeviceStaging::check(DriverResult result, const std::string& call) const {
  return driver_.status(result, fmt::format("GPU {}: {}", device_, call));
}

Status DeviceStaging::allocate() {
  REGROUP_RETURN_IF_ERROR(check(driver_.init(0), "cuInit"));
  collective::cuda::DeviceIndex device = 0;
  REGROUP_RETURN_IF_ERROR(check(driver_.device_get(&device, device_), "cuDeviceGet"));
  collective::cuda::Context context = nullptr;
  REGROUP_RETURN_IF_ERROR(check(driver_.context_get(&context), "cuCtxGetCurrent"));
  if (context == nullptr) {  // kept until the process ends: the caller's memory may be in it
    REGROUP_RETURN_IF_ERROR(
        check(driver_.primary_context_retain(&context, device), "cuDevicePrimaryCtxRetain"));
    REGROUP_RETURN_IF_ERROR(check(driver_.context_set(context), "cuCtxSetCurrent"));
  }
  const std::string call = fmt::format("cuMemAlloc of {} bytes for a gradient", bytes_);
  REGROUP_RETURN_IF_ERROR(check(driver_.memory_allocate(&leaf_, bytes_), call));
  REGROUP_RETURN_IF_ERROR(check(driver_.memory_allocate(&sum_, bytes_), call));
  return check(driver_.event_create(&event_, collective::cuda::kDisableTiming), "cuEventCreate");
}

// After an error of the device these calls fail too, and the end of the process frees everything.
DeviceStaging::~DeviceStaging() {
  if (event_ != nullptr) (void)driver_.event_destroy(event_);
  for (void* host : pinned_) (void)driver_.host_unregister(host);
  if (leaf_ != 0) (void)driver_.memory_free(leaf_);
  if (sum_ != 0) (void)driver_.memory_free(sum_);
}

void DeviceStaging::pin(std::span<std::byte> host) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(host.data()) / page * page;
  const auto end =
      (reinterpret_cast<std::uintptr_t>(host.data() + host.size()) + page - 1) / page * page;
  auto* const first = reinterpret_cast<void*>(begin);
  if (driver_.host_register(first, end - begin, collective::cuda::kHostRegisterPortable) ==
      DriverResult::kSuccess)
    pinned_.push_back(first);
}

std::span<std::byte> DeviceStaging::leaf() const { return {address_of(leaf_), bytes_}; }

Status DeviceStaging::wait(const std::string& what) const {
  REGROUP_RETURN_IF_ERROR(check(driver_.event_record(event_, stream_), "cuEventRecord"));
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const DriverResult result = driver_.event_query(event_);
    if (result != DriverResult::kNotReady) return check(result, what);
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > deadline_)
      return base::deadline_exceeded(
          fmt::format("GPU {}: {}: not done after {} s", device_, what,
                      std::chrono::duration_cast<std::chrono::seconds>(waited).count()));
    if (waited > kSpin) std::this_thread::sleep_for(kSleep);
  }
}

Status DeviceStaging::copy_leaf_to(std::span<std::byte> host) const {
  REGROUP_RETURN_IF_ERROR(
      check(driver_.copy_to_host(host.data(), leaf_, host.size(), stream_), "cuMemcpyDtoHAsync"));
  return wait("copy of a gradient to the host");
}

Result<std::span<const std::byte>> DeviceStaging::copy_sum(std::span<const std::byte> host) const {
  REGROUP_RETURN_IF_ERROR(
      check(driver_.copy_to_device(sum_, host.data(), host.size(), stream_), "cuMemcpyHtoDAsync"));
  REGROUP_RETURN_IF_ERROR(wait("copy of a sum to the device"));
  return std::span<const std::byte>(address_of(sum_), bytes_);
}

}  // namespace regroup::elastic
