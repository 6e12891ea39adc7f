// A copy is awaited by polling: a blocking wait for a device that hangs would have no deadline.
#include "elastic/device_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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
// What a poll counts at most: while the process is stopped, nobody waits.
constexpr base::Duration kLongestPoll = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<DeviceStream>> DeviceStream::open(std::optional<int> device, void* stream,
                                                         base::Duration deadline) {
  REGROUP_ASSIGN_OR_RETURN(const auto driver, collective::cuda::load_driver());
  std::unique_ptr<DeviceStream> out(new DeviceStream(driver, stream, deadline));
  REGROUP_RETURN_IF_ERROR(out->prepare(device));
  return out;
}

DeviceStream::~DeviceStream() {
  if (event_ != nullptr && answers_) (void)driver_.event_destroy(event_);
}

Status DeviceStream::check(DriverResult result, const std::string& call) const {
  return driver_.status(result, fmt::format("GPU {}: {}", device_, call));
}

Status DeviceStream::prepare(std::optional<int> device) {
  device_ = device.value_or(0);
  REGROUP_RETURN_IF_ERROR(check(driver_.init(0), "cuInit"));
  collective::cuda::Context context = nullptr;
  REGROUP_RETURN_IF_ERROR(check(driver_.context_get(&context), "cuCtxGetCurrent"));
  if (context == nullptr) {  // kept until the process ends: the caller's memory may be in it
    collective::cuda::DeviceIndex index = 0;
    REGROUP_RETURN_IF_ERROR(check(driver_.device_get(&index, device_), "cuDeviceGet"));
    REGROUP_RETURN_IF_ERROR(
        check(driver_.primary_context_retain(&context, index), "cuDevicePrimaryCtxRetain"));
    REGROUP_RETURN_IF_ERROR(check(driver_.context_set(context), "cuCtxSetCurrent"));
  }
  REGROUP_RETURN_IF_ERROR(check(driver_.context_device(&device_), "cuCtxGetDevice"));
  if (device && *device != device_)
    return base::invalid_argument(fmt::format(
        "expected a context of GPU {} in this thread, got one of GPU {}", *device, device_));
  return check(driver_.event_create(&event_, collective::cuda::kDisableTiming), "cuEventCreate");
}

Result<DeviceStream::Device> DeviceStream::device() const {
  collective::cuda::DeviceUuid uuid{};
  REGROUP_RETURN_IF_ERROR(check(driver_.device_uuid(&uuid, device_), "cuDeviceGetUuid"));
  std::size_t free = 0;
  std::size_t total = 0;
  REGROUP_RETURN_IF_ERROR(check(driver_.memory_info(&free, &total), "cuMemGetInfo"));
  return Device{collective::cuda::text_of(uuid), free};
}

// Of a MIG instance the older function tells the UUID of its GPU.
Result<std::string> DeviceStream::visible_uuid() const {
  collective::cuda::DeviceUuid whole{}, own{};
  REGROUP_RETURN_IF_ERROR(check(driver_.device_uuid(&whole, device_), "cuDeviceGetUuid"));
  if (driver_.visible_uuid == nullptr) return collective::cuda::text_of(whole);
  REGROUP_RETURN_IF_ERROR(check(driver_.visible_uuid(&own, device_), "cuDeviceGetUuid_v2"));
  std::string text = collective::cuda::text_of(own);
  if (!std::ranges::equal(whole.bytes, own.bytes)) text.replace(0, 3, "MIG");
  return text;
}

// Whole pages: a page that is pinned twice is refused.
void* DeviceStream::pin(std::span<std::byte> host) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(host.data()) / page * page;
  const auto end =
      (reinterpret_cast<std::uintptr_t>(host.data() + host.size()) + page - 1) / page * page;
  auto* const first = reinterpret_cast<void*>(begin);
  return driver_.host_register(first, end - begin, collective::cuda::kHostRegisterPortable) ==
                 DriverResult::kSuccess
             ? first
             : nullptr;
}

Status DeviceStream::copy_to_host(std::span<std::byte> host, DevicePointer from) const {
  REGROUP_RETURN_IF_ERROR(wait("work before a copy to the host"));
  REGROUP_RETURN_IF_ERROR(
      check(driver_.copy_to_host(host.data(), from, host.size(), stream_), "cuMemcpyDtoHAsync"));
  return wait("copy to the host");
}

Status DeviceStream::copy_to_device(DevicePointer to, std::span<const std::byte> host) const {
  REGROUP_RETURN_IF_ERROR(wait("work before a copy to the device"));
  REGROUP_RETURN_IF_ERROR(
      check(driver_.copy_to_device(to, host.data(), host.size(), stream_), "cuMemcpyHtoDAsync"));
  return wait("copy to the device");
}

Status DeviceStream::change_stream(void* stream) {
  auto* const next = static_cast<collective::cuda::Stream>(stream);
  if (next == stream_) return {};
  REGROUP_RETURN_IF_ERROR(check(driver_.event_record(event_, stream_), "cuEventRecord"));
  REGROUP_RETURN_IF_ERROR(check(driver_.stream_wait_event(next, event_, 0), "cuStreamWaitEvent"));
  stream_ = next;
  return {};
}

bool DeviceStream::drain() const {
  if (!answers_ || driver_.event_record(event_, stream_) != DriverResult::kSuccess) return answers_;
  const auto begin = std::chrono::steady_clock::now();
  while (answers_ && driver_.event_query(event_) == DriverResult::kNotReady) {
    if (std::chrono::steady_clock::now() - begin > kDrainLimit) answers_ = false;
    std::this_thread::sleep_for(kSleep);
  }
  return answers_;
}

Status DeviceStream::wait(const char* what) const {
  REGROUP_RETURN_IF_ERROR(check(driver_.event_record(event_, stream_), "cuEventRecord"));
  return wait(event_, what);
}

Status DeviceStream::wait(collective::cuda::DriverEvent event, const char* what) const {
  base::Duration waited{};
  for (auto last = std::chrono::steady_clock::now();;) {
    const auto now = std::chrono::steady_clock::now();
    waited += std::min<base::Duration>(now - last, kLongestPoll);
    last = now;
    const DriverResult result = driver_.event_query(event);
    if (result != DriverResult::kNotReady) return check(result, what);
    if (waited > deadline_) {
      answers_ = false;
      return base::deadline_exceeded(
          fmt::format("GPU {}: {}: not done after {} s", device_, what,
                      std::chrono::duration_cast<std::chrono::seconds>(waited).count()));
    }
    if (waited > kSpin) std::this_thread::sleep_for(kSleep);
  }
}

}  // namespace regroup::elastic
