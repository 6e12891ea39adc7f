// What a device can do, what its memory and contexts take, and how fast the host learns of it.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/gpu/questions.h"
#include "tests/gpu/role.h"

namespace regroup::gpu {

using collective::cuda::Allocation;
using collective::cuda::AllocationProperties;
using collective::cuda::DeviceAttribute;
using collective::cuda::DevicePointer;
using collective::cuda::DriverEvent;
using collective::cuda::DriverResult;
using collective::cuda::kReadWrite;
using std::chrono::milliseconds;

void pause(milliseconds time) { std::this_thread::sleep_for(time); }

void* map_shared(std::size_t bytes, int value) {
  const int memory = ::memfd_create("truths", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, off_t(bytes)) != 0)
    throw std::runtime_error("memfd_create");
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
  std::memset(mapped, value, bytes);
  return mapped;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::size_t(share * double(values.size() - 1) + 0.5)];
}

// Sends p50, p99, minimum and count.
std::vector<double> summary(const std::vector<double>& values) {
  return {percentile(values, 0.5), percentile(values, 0.99), percentile(values, 0),
          double(values.size())};
}

void add_summary(Answer& answer, const std::string& name, const double* values) {
  answer.figures[name + " p50"] = values[0];
  answer.figures[name + " p99"] = values[1];
  answer.figures[name + " min"] = values[2];
  answer.figures[name + " samples"] = values[3];
}

Answer ask_driver(const std::string& library) {
  Role role([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    std::array<char, 128> name{};
    gpu.check(gpu->device_name(name.data(), name.size(), 0), "cuDeviceGetName");
    std::vector<double> values{gpu.init_ms(), gpu.context_ms()};
    int version = 0;
    gpu.check(gpu->driver_version(&version), "cuDriverGetVersion");
    values.push_back(version);
    std::size_t bytes = 0;
    gpu.check(gpu->device_memory(&bytes, 0), "cuDeviceTotalMem");
    values.push_back(double(bytes) / double(kGiB));
    for (const auto attribute :
         {DeviceAttribute::kMultiprocessorCount, DeviceAttribute::kComputeMode,
          DeviceAttribute::kEccEnabled, DeviceAttribute::kL2CacheSize,
          DeviceAttribute::kAsyncEngineCount, DeviceAttribute::kComputeCapabilityMajor,
          DeviceAttribute::kComputeCapabilityMinor, DeviceAttribute::kPageableMemoryAccess,
          DeviceAttribute::kComputePreemptionSupported, DeviceAttribute::kHostRegisterSupported,
          DeviceAttribute::kVirtualMemoryManagementSupported,
          DeviceAttribute::kPosixFileDescriptorSupported,
          DeviceAttribute::kGpuDirectRdmaWithVmmSupported, DeviceAttribute::kDmaBufSupported,
          DeviceAttribute::kFabricHandleSupported, DeviceAttribute::kMulticastSupported}) {
      int value = -1;
      if (gpu->device_attribute(&value, attribute, 0) != kSuccess) value = -1;
      values.push_back(value);
    }
    AllocationProperties properties;
    std::size_t granularity = 0;
    gpu.check(gpu->granularity(&granularity, &properties, collective::cuda::kMinimumGranularity),
              "cuMemGetAllocationGranularity");
    values.push_back(double(granularity));
    channel.send(name.data(), values);
  });
  const auto told = role.wait();
  constexpr const char* kNames[] = {"cuInit ms",
                                    "context ms",
                                    "driver version",
                                    "memory GiB",
                                    "multiprocessors",
                                    "compute mode",
                                    "ECC",
                                    "L2 bytes",
                                    "copy engines",
                                    "capability major",
                                    "capability minor",
                                    "pageable memory access",
                                    "compute preemption",
                                    "host memory can be registered",
                                    "virtual memory management",
                                    "POSIX file descriptors",
                                    "GPUDirect RDMA with virtual memory management",
                                    "DMA-BUF",
                                    "fabric handles",
                                    "multicast",
                                    "granularity bytes"};
  Answer answer{told.text, {}};
  for (std::size_t i = 0; i < std::size(kNames); ++i) answer.figures[kNames[i]] = told.values[i];
  return answer;
}

Answer ask_create_without_context(const std::string& library) {
  Role observer([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    do channel.send("free", {gpu.free_bytes()});
    while (channel.receive(std::chrono::seconds(10)));
  });
  const double before = observer.wait().values[0];
  constexpr std::size_t kBytes = 256 * kMiB;
  Role role([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kNothing);
    AllocationProperties properties;
    properties.flags.gpu_direct_rdma = 1;
    Allocation rdma = 0;
    const Time rdma_begin = Clock::now();
    const DriverResult with_rdma = gpu->allocation_create(&rdma, kBytes, &properties, 0);
    const double rdma_ms = milliseconds_since(rdma_begin);
    if (with_rdma == kSuccess) gpu.check(gpu->allocation_release(rdma), "cuMemRelease");
    properties.flags.gpu_direct_rdma = 0;
    Allocation plain = 0;
    const Time begin = Clock::now();
    const DriverResult created = gpu->allocation_create(&plain, kBytes, &properties, 0);
    const double create_ms = milliseconds_since(begin);
    std::string text = fmt::format("cuMemCreate {}, with GPUDirect RDMA {}", gpu.name(created),
                                   gpu.name(with_rdma));
    if (created == kSuccess) {
      int descriptor = -1;
      const DriverResult exported =
          gpu->allocation_export(&descriptor, plain, collective::cuda::kPosixFileDescriptor, 0);
      text += fmt::format(", cuMemExportToShareableHandle {}", gpu.name(exported));
    }
    channel.send(text, {create_ms, rdma_ms, gpu.init_ms()});
    (void)channel.receive(std::chrono::seconds(10));
  });
  const auto told = role.wait();
  observer.channel().send("again");
  const double during = observer.wait().values[0];
  return {told.text,
          {{"create 256 MiB ms", told.values[0]},
           {"create 256 MiB with RDMA ms", told.values[1]},
           {"cuInit ms", told.values[2]},
           {"MiB taken beside the allocation", (before - during - double(kBytes)) / double(kMiB)}}};
}

// A context of its own.
Answer ask_context(const std::string& library) {
  Role observer([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    do channel.send("free", {gpu.free_bytes()});
    while (channel.receive(std::chrono::seconds(10)));
  });
  const double before = observer.wait().values[0];
  Role role([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    gpu.check(gpu.store_word(gpu.map(gpu.create(2 * kMiB), 2 * kMiB, kReadWrite), 1), "launch");
    gpu.check(gpu.synchronize(), "cuStreamSynchronize");
    channel.send("ready", {gpu.init_ms(), gpu.context_ms()});
    (void)channel.receive(std::chrono::seconds(10));
  });
  const auto told = role.wait();
  observer.channel().send("again");
  const double during = observer.wait().values[0];
  const double killed = now_ms();
  role.kill();
  (void)role.reap();
  const double reaped = now_ms();
  observer.channel().send("again");
  const double after = observer.wait().values[0];
  return {"a second context on the device",
          {{"cuInit ms", told.values[0]},
           {"context ms", told.values[1]},
           {"MiB of the device", (before - during) / double(kMiB)},
           {"MiB not returned at the reap", (before - after) / double(kMiB)},
           {"kill to reap ms", reaped - killed}}};
}

Answer ask_costs(const std::string& library) {
  Answer answer{"create, export, import, map, unmap", {}};
  for (const std::size_t bytes : {16 * kMiB, kGiB, 8 * kGiB}) {
    Role role([&](Channel& channel) {
      const Gpu gpu(channel, library, Gpu::With::kContext);
      std::array<std::vector<double>, 6> times;
      for (int round = 0; round < 5; ++round) {
        Time begin = Clock::now();
        const auto lap = [&](std::size_t which) {
          times[which].push_back(milliseconds_since(begin));
          begin = Clock::now();
        };
        const Allocation made = gpu.create(bytes);
        lap(0);
        const int descriptor = gpu.export_of(made);
        lap(1);
        const Allocation imported = gpu.import_of(descriptor);
        lap(2);
        const DevicePointer at = gpu.map(imported, bytes, kReadWrite);
        lap(3);
        gpu.check(gpu->unmap(at, bytes), "cuMemUnmap");
        gpu.check(gpu->address_free(at, bytes), "cuMemAddressFree");
        lap(4);
        gpu.check(gpu->allocation_release(imported), "cuMemRelease");
        gpu.check(gpu->allocation_release(made), "cuMemRelease");
        ::close(descriptor);
        lap(5);
      }
      std::vector<double> medians;
      for (const auto& time : times) medians.push_back(percentile(time, 0.5));
      channel.send("costs", medians);
    });
    const auto told = role.wait();
    constexpr const char* kSteps[] = {"create", "export", "import", "map", "unmap", "release"};
    for (std::size_t i = 0; i < std::size(kSteps); ++i)
      answer.figures[fmt::format("{} {} MiB ms", kSteps[i], bytes / kMiB)] = told.values[i];
  }
  return answer;
}

Answer ask_event_to_host(const std::string& library) {
  Role role([&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const DevicePointer at = gpu.map(gpu.create(2 * kMiB), 2 * kMiB, kReadWrite);
    DriverEvent polled = nullptr;
    DriverEvent blocking = nullptr;
    gpu.check(gpu->event_create(&polled, collective::cuda::kDisableTiming), "cuEventCreate");
    gpu.check(gpu->event_create(&blocking,
                                collective::cuda::kDisableTiming | collective::cuda::kBlockingSync),
              "cuEventCreate");
    std::vector<double> polls;
    std::vector<double> sleeps;
    std::vector<double> copies;
    for (unsigned i = 0; i < 2000; ++i) {
      Time begin = Clock::now();
      gpu.check(gpu.store_word(at, i), "store_word");
      gpu.check(gpu->event_record(polled, gpu.stream()), "cuEventRecord");
      while (gpu->event_query(polled) == DriverResult::kNotReady) {
      }
      polls.push_back(1000 * milliseconds_since(begin));
      begin = Clock::now();
      gpu.check(gpu.store_word(at, i), "store_word");
      gpu.check(gpu->event_record(blocking, gpu.stream()), "cuEventRecord");
      gpu.check(gpu->event_synchronize(blocking), "cuEventSynchronize");
      sleeps.push_back(1000 * milliseconds_since(begin));
      unsigned word = 0;
      begin = Clock::now();
      gpu.check(gpu->copy_to_host(&word, at, sizeof word, gpu.stream()), "cuMemcpyDtoHAsync");
      gpu.check(gpu.synchronize(), "cuStreamSynchronize");
      copies.push_back(1000 * milliseconds_since(begin));
    }
    std::vector<double> values = summary(polls);
    for (const double value : summary(sleeps)) values.push_back(value);
    for (const double value : summary(copies)) values.push_back(value);
    channel.send("times", values);
  });
  const auto told = role.wait();
  Answer answer{"launch of a kernel until the host knows that it ended", {}};
  add_summary(answer, "event polled us", &told.values[0]);
  add_summary(answer, "event slept for us", &told.values[4]);
  add_summary(answer, "copy of 4 bytes us", &told.values[8]);
  return answer;
}

// Pinning of shared host memory, by two processes at once, and the speed of copies.
Answer ask_pinning(const std::string& library) {
  constexpr std::size_t kBytes = 256 * kMiB;
  void* mapped = map_shared(kBytes, 3);
  const auto body = [&](Channel& channel) {
    const Gpu gpu(channel, library, Gpu::With::kContext);
    const DevicePointer at = gpu.map(gpu.create(kBytes), kBytes, kReadWrite);
    const auto rate = [&](bool to_host) {
      std::vector<double> rates;
      for (int i = 0; i < 3; ++i) {
        const Time begin = Clock::now();
        gpu.check(to_host ? gpu->copy_to_host(mapped, at, kBytes, gpu.stream())
                          : gpu->copy_to_device(at, mapped, kBytes, gpu.stream()),
                  "copy");
        gpu.check(gpu.synchronize(), "cuStreamSynchronize");
        rates.push_back(double(kBytes) / 1e6 / milliseconds_since(begin));
      }
      return percentile(rates, 0.5);
    };
    const double pageable_down = rate(true);
    const double pageable_up = rate(false);
    Time begin = Clock::now();
    gpu.check(gpu->host_register(mapped, kBytes, collective::cuda::kHostRegisterPortable),
              "cuMemHostRegister");
    const double pin_ms = milliseconds_since(begin);
    const double down = rate(true);
    const double up = rate(false);
    begin = Clock::now();
    if (channel.send("pinned", {pin_ms, down, up, pageable_down, pageable_up}))
      (void)channel.receive(std::chrono::seconds(30));
    begin = Clock::now();
    gpu.check(gpu->host_unregister(mapped), "cuMemHostUnregister");
    channel.send("unpinned", {milliseconds_since(begin)});
  };
  Role first(body);
  constexpr std::chrono::seconds kTimeout(20);
  const auto told = first.wait(kTimeout);
  Role second(body);  // while the first has it pinned
  const auto again = second.wait(kTimeout);
  first.channel().send("end");
  const double unpin = first.wait().values[0];
  second.channel().send("end");
  (void)second.wait();
  return {"a memfd of 256 MiB, pinned by two processes at once",
          {{"pin ms", told.values[0]},
           {"pin by a second process ms", again.values[0]},
           {"unpin ms", unpin},
           {"device to host GB/s", told.values[1]},
           {"host to device GB/s", told.values[2]},
           {"device to host, not pinned, GB/s", told.values[3]},
           {"host to device, not pinned, GB/s", told.values[4]}}};
}

}  // namespace regroup::gpu
