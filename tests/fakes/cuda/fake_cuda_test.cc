// The fake driver keeps CUDA's rules: each is a test, as a card would have to pass it.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "tests/fakes/cuda/fake.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::fakes::cuda {
namespace {

constexpr std::size_t kUnit = 2 << 20;  // the granularity

TEST(FakeCuda, ExportsTheTableAndNothingElse) {
  std::set<std::string> expected{kAddKernel, kSetCapture, "cuDeviceGetUuid_v2"};
#define REGROUP_CUDA_NAME(member, symbol, ...) expected.insert(#symbol);
  REGROUP_CUDA_FUNCTIONS(REGROUP_CUDA_NAME)
#undef REGROUP_CUDA_NAME
  std::FILE* names = ::popen("nm -D --defined-only --format=posix " FAKE_CUDA, "r");
  ASSERT_NE(names, nullptr);
  std::set<std::string> exported;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), names) != nullptr) {
    const std::string text = line.data();
    exported.insert(text.substr(0, text.find(' ')));
  }
  EXPECT_EQ(::pclose(names), 0);
  EXPECT_EQ(exported, expected);
}

TEST(FakeCuda, NothingWorksBeforeInit) {
  in_process([] {
    const Driver driver = load_fake();
    int count = 0;
    Context context = nullptr;
    Allocation allocation = 0;
    const AllocationProperties properties;
    EXPECT_EQ(driver.device_count(&count), kNotInitialized);
    EXPECT_EQ(driver.context_get(&context), kNotInitialized);
    EXPECT_EQ(driver.primary_context_retain(&context, 0), kNotInitialized);
    EXPECT_EQ(driver.allocation_create(&allocation, kUnit, &properties, 0), kNotInitialized);
    EXPECT_EQ(driver.stream_synchronize(nullptr), kNotInitialized);
    EXPECT_EQ(driver.init(1), kInvalidValue);
    EXPECT_EQ(driver.init(0), kSuccess);
    EXPECT_EQ(driver.init(0), kSuccess);
    EXPECT_EQ(driver.device_count(&count), kSuccess);
    EXPECT_EQ(count, 1);
  });
}

TEST(FakeCuda, ErrorsHaveCudasNames) {
  const Driver driver = load_fake();
  const char* text = nullptr;
  EXPECT_EQ(driver.error_name(DriverResult::kIllegalAddress, &text), kSuccess);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(driver.error_string(DriverResult::kIllegalAddress, &text), kSuccess);
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  EXPECT_EQ(driver.error_name(DriverResult(12345), &text), kInvalidValue);
  EXPECT_EQ(text, nullptr);
}

TEST(FakeCuda, DevicesAreThoseOfTheSettings) {
  in_process(
      [] {
        const Driver driver = load_fake();
        ASSERT_EQ(driver.init(0), kSuccess);
        int count = 0;
        EXPECT_EQ(driver.device_count(&count), kSuccess);
        EXPECT_EQ(count, 3);
        DeviceIndex device = -1;
        EXPECT_EQ(driver.device_get(&device, 2), kSuccess);
        EXPECT_EQ(device, 2);
        EXPECT_EQ(driver.device_get(&device, 3), kInvalidDevice);
        std::array<char, 7> name{};
        EXPECT_EQ(driver.device_name(name.data(), name.size(), 0), kSuccess);
        EXPECT_STREQ(name.data(), "Test c");
        std::size_t bytes = 0;
        EXPECT_EQ(driver.device_memory(&bytes, 1), kSuccess);
        EXPECT_EQ(bytes, 1UL << 30);
        DeviceUuid uuid{};
        EXPECT_EQ(driver.device_uuid(&uuid, 2), kSuccess);
        EXPECT_EQ(uuid.bytes[0], 0x01);
        EXPECT_EQ(uuid.bytes[15], 0x12);
        int value = 0;
        EXPECT_EQ(driver.driver_version(&value), kSuccess);
        EXPECT_EQ(value, 12090);
        EXPECT_EQ(driver.device_can_access_peer(&value, 0, 1), kSuccess);
        EXPECT_EQ(value, 0);
        EXPECT_EQ(
            driver.device_attribute(&value, DeviceAttribute::kPosixFileDescriptorSupported, 0),
            kSuccess);
        EXPECT_EQ(value, 0);
        EXPECT_EQ(driver.device_attribute(&value, DeviceAttribute::kComputeCapabilityMajor, 0),
                  kSuccess);
        EXPECT_EQ(value, 9);
        AllocationProperties properties;
        Allocation allocation = 0;
        EXPECT_EQ(driver.allocation_create(&allocation, kUnit, &properties, 0), kNotSupported);
      },
      "devices=3; name=Test card; memory=1G; uuid=0102030405060708090a0b0c0d0e0f10; driver=12090;"
      "peers=0; descriptors=0");
}

TEST(FakeCuda, BadSettingsAreRefusedAtInit) {
  for (const char* settings :
       {"devices=17", "memory=much", "uuid=12", "peers=2", "colour=red", "x"})
    in_process([] { EXPECT_EQ(load_fake().init(0), kInvalidValue); }, settings);
  for (const char* faults : {"illegal", "at=0 illegal", "at=1 fire", "at=1 slow=0", "at=x oom"})
    in_process([] { EXPECT_EQ(load_fake().init(0), kInvalidValue); }, "", faults);
  in_process([] { EXPECT_EQ(load_fake().init(0), DriverResult::kNoDevice); }, "devices=0");
}

TEST(FakeCuda, AForkedChildIsNotInitialized) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(4);
    Process child([&](int) {
      std::size_t bytes = 0;
      EXPECT_EQ(gpu->memory_info(&bytes, &bytes), kNotInitialized);
      EXPECT_EQ(gpu->init(0), kNotInitialized);
      EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kNotInitialized);
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.word(at), 1);
    Process reader([&](int) { EXPECT_EQ(*reinterpret_cast<volatile std::uint32_t*>(at), 1); });
    EXPECT_NE(reader.wait(), 0);  // the memory is not in the child
  });
}

TEST(FakeCuda, AContextBelongsToAThread) {
  in_process([] {
    const Gpu gpu;
    std::thread([&] {
      Context mine = gpu.context;
      EXPECT_EQ(gpu->context_get(&mine), kSuccess);
      EXPECT_EQ(mine, nullptr);
      std::size_t bytes = 0;
      DevicePointer at = 0;
      Stream stream = nullptr;
      EXPECT_EQ(gpu->memory_info(&bytes, &bytes), kInvalidContext);
      EXPECT_EQ(gpu->memory_allocate(&at, 4), kInvalidContext);
      EXPECT_EQ(gpu->stream_create(&stream, 0, 0), kInvalidContext);
      EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kInvalidContext);
      const DevicePointer mapped = gpu.map(gpu.create(kUnit), kUnit, kReadWrite);  // needs none
      EXPECT_EQ(gpu.store_word(mapped, 1, gpu.stream), kInvalidContext);
      EXPECT_EQ(gpu->context_set(gpu.context), kSuccess);
      EXPECT_EQ(gpu.store_word(mapped, 1, gpu.stream), kSuccess);
      EXPECT_EQ(gpu.word(mapped), 1);
    }).join();
  });
}

TEST(FakeCuda, APrimaryContextLivesUntilItsLastRelease) {
  in_process([] {
    const Gpu gpu;
    Context again = nullptr;
    EXPECT_EQ(gpu->primary_context_retain(&again, 0), kSuccess);
    EXPECT_EQ(again, gpu.context);
    const DevicePointer at = gpu.allocate(4);
    EXPECT_EQ(gpu->primary_context_release(0), kSuccess);
    EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->primary_context_release(0), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kContextIsDestroyed);
    EXPECT_EQ(gpu->primary_context_release(0), kInvalidContext);
    EXPECT_EQ(gpu->context_set(again), kInvalidContext);
    const Gpu another;
    EXPECT_EQ(another->memory_free(at), kInvalidValue);  // went with its context
    EXPECT_EQ(another.word(another.allocate(4)), 0);
  });
}

TEST(FakeCuda, VirtualMemoryIsCheckedAsCudaDoes) {
  in_process([] {
    const Gpu gpu;
    AllocationProperties properties;
    std::size_t granularity = 0;
    EXPECT_EQ(gpu->granularity(&granularity, &properties, kMinimumGranularity), kSuccess);
    EXPECT_EQ(granularity, kUnit);
    Allocation allocation = 0;
    EXPECT_EQ(gpu->allocation_create(&allocation, kUnit + 4096, &properties, 0), kInvalidValue);
    properties.location.device = 1;
    EXPECT_EQ(gpu->allocation_create(&allocation, kUnit, &properties, 0), kInvalidDevice);
    allocation = gpu.create(2 * kUnit);
    DevicePointer at = 0;
    EXPECT_EQ(gpu->address_reserve(&at, kUnit + 1, 0, 0, 0), kInvalidValue);
    EXPECT_EQ(gpu->address_reserve(&at, 4 * kUnit, 4 * kUnit, 0, 0), kSuccess);
    EXPECT_EQ(at % (4 * kUnit), 0);
    EXPECT_EQ(gpu->map(at + 4096, kUnit, 0, allocation, 0), kInvalidValue);
    EXPECT_EQ(gpu->map(at, 3 * kUnit, 0, allocation, 0), kInvalidValue);
    EXPECT_EQ(gpu->map(at, kUnit, kUnit, allocation, 0), kInvalidValue);  // an offset
    EXPECT_EQ(gpu->map(at + 3 * kUnit, 2 * kUnit, 0, allocation, 0), kInvalidValue);
    EXPECT_EQ(gpu->map(at, 2 * kUnit, 0, allocation, 0), kSuccess);
    EXPECT_EQ(gpu->map(at + kUnit, kUnit, 0, allocation, 0), kInvalidValue);  // taken
    const AccessDescription access;
    EXPECT_EQ(gpu->set_access(at, kUnit, &access, 1), kInvalidValue);
    EXPECT_EQ(gpu->set_access(at, 4 * kUnit, &access, 1), kInvalidValue);
    EXPECT_EQ(gpu->set_access(at, 2 * kUnit, &access, 1), kSuccess);
    EXPECT_EQ(gpu->allocation_release(allocation), kSuccess);
    EXPECT_EQ(gpu->allocation_release(allocation), kInvalidValue);
    EXPECT_EQ(gpu.store_word(at + 2 * kUnit - 4, 3, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.word(at + 2 * kUnit - 4), 3);
    std::uint32_t word = 0;
    EXPECT_EQ(gpu->copy_to_host(&word, at + 2 * kUnit - 2, 4, gpu.stream), kInvalidValue);
    EXPECT_EQ(gpu->address_free(at, 4 * kUnit), kInvalidValue);  // still mapped
    EXPECT_EQ(gpu->unmap(at, kUnit), kInvalidValue);
    EXPECT_EQ(gpu->unmap(at, 2 * kUnit), kSuccess);
    EXPECT_EQ(gpu->address_free(at, 4 * kUnit), kSuccess);
  });
}

TEST(FakeCuda, MemoryIsCountedUntilItsLastHandleAndMapping) {
  in_process(
      [] {
        const Gpu gpu;
        const auto free_units = [&] {
          std::size_t free = 0, total = 0;
          EXPECT_EQ(gpu->memory_info(&free, &total), kSuccess);
          EXPECT_EQ(total, 8 * kUnit);
          return free / kUnit;
        };
        const AllocationProperties properties;
        Allocation allocation = 0;
        EXPECT_EQ(gpu->allocation_create(&allocation, 9 * kUnit, &properties, 0), kOutOfMemory);
        allocation = gpu.create(4 * kUnit);
        EXPECT_EQ(free_units(), 4);
        const DevicePointer at = gpu.map(allocation, 4 * kUnit, kReadWrite);
        EXPECT_EQ(gpu->allocation_release(allocation), kSuccess);
        EXPECT_EQ(free_units(), 4);
        DevicePointer block = 0;
        EXPECT_EQ(gpu->memory_allocate(&block, 5 * kUnit), kOutOfMemory);
        EXPECT_EQ(gpu->memory_allocate(&block, 3 * kUnit), kSuccess);
        EXPECT_EQ(free_units(), 1);
        EXPECT_EQ(gpu->memory_free(block), kSuccess);
        EXPECT_EQ(gpu->unmap(at, 4 * kUnit), kSuccess);
        EXPECT_EQ(free_units(), 8);
      },
      "memory=16M");
}

TEST(FakeCuda, PointersSayWhereTheyPoint) {
  in_process(
      [] {
        const Gpu gpu;
        const Pinned pinned(gpu, 8);
        const auto type_of = [&](DevicePointer at) {
          unsigned type = 0;
          return gpu->pointer_attribute(&type, PointerAttribute::kMemoryType, at) == kSuccess ? type
                                                                                              : 0;
        };
        const DevicePointer block = gpu.allocate(100);
        EXPECT_EQ(block % 256, 0);
        EXPECT_EQ(type_of(block + 99), kMemoryTypeDevice);
        EXPECT_EQ(type_of(reinterpret_cast<DevicePointer>(&pinned.words[7])), kMemoryTypeHost);
        int local = 0;
        EXPECT_EQ(type_of(reinterpret_cast<DevicePointer>(&local)), 0);
        AllocationProperties properties;
        properties.location.device = 1;
        Allocation allocation = 0;
        EXPECT_EQ(gpu->allocation_create(&allocation, kUnit, &properties, 0), kSuccess);
        int ordinal = -1;
        EXPECT_EQ(gpu->pointer_attribute(&ordinal, PointerAttribute::kDeviceOrdinal,
                                         gpu.map(allocation, kUnit, kReadOnly)),
                  kSuccess);
        EXPECT_EQ(ordinal, 1);
      },
      "devices=2");
}

TEST(FakeCuda, MemoryPassesBetweenProcesses) {
  Process maker([](int socket) {
    const Gpu gpu;
    const Allocation allocation = gpu.create(kUnit);
    const DevicePointer at = gpu.map(allocation, kUnit, kReadWrite);
    send(socket, gpu.export_of(allocation));
    receive(socket);
    EXPECT_EQ(gpu.word(at + 4), 8);
    EXPECT_EQ(gpu.store_word(at, 7, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    send(socket);
  });
  const int descriptor = receive(maker.socket());
  Process other([](int socket) {
    const Gpu gpu;
    const int received = receive(socket);
    const DevicePointer at = gpu.map(gpu.import_of(received), kUnit, kReadWrite);
    ::close(received);
    EXPECT_EQ(gpu.store_word(at + 4, 8, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    send(socket);
    receive(socket);
    EXPECT_EQ(gpu.word(at), 7);
  });
  send(other.socket(), descriptor);
  receive(other.socket());
  send(maker.socket());
  receive(maker.socket());
  send(other.socket());
  EXPECT_EQ(maker.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
  ::close(descriptor);
}

TEST(FakeCuda, MemoryOutlivesItsMakerByTheDescriptor) {
  int descriptor = -1;
  {
    Process maker([](int socket) {
      const Gpu gpu;
      const Allocation allocation = gpu.create(kUnit);
      const DevicePointer at = gpu.map(allocation, kUnit, kReadWrite);
      EXPECT_EQ(gpu->set_bytes(at, 0x5a, kUnit, gpu.stream), kSuccess);
      EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
      send(socket, gpu.export_of(allocation));
      receive(socket);
    });
    descriptor = receive(maker.socket());
    maker.kill();
    EXPECT_TRUE(WIFSIGNALED(maker.wait()));
  }
  in_process([&] {
    const Gpu gpu;
    const DevicePointer at = gpu.map(gpu.import_of(descriptor), kUnit, kReadOnly);
    EXPECT_EQ(gpu.word(at), 0x5a5a5a5a);
    EXPECT_EQ(gpu.word(at + kUnit - 4), 0x5a5a5a5a);
    Allocation none = 0;
    EXPECT_EQ(gpu->allocation_import(&none, nullptr, kPosixFileDescriptor), kInvalidValue);
  });
  ::close(descriptor);
}

// What writes to memory that its process may only read.
using Write = DriverResult (*)(const Gpu&, DevicePointer);
constexpr Write kWrites[] = {
    [](const Gpu& gpu, DevicePointer at) { return gpu.store_word(at, 42, gpu.stream); },
    [](const Gpu& gpu, DevicePointer at) { return gpu->set_bytes(at, 1, 4, gpu.stream); },
    [](const Gpu& gpu, DevicePointer at) { return gpu->copy_to_device(at, "abc", 4, gpu.stream); }};

TEST(FakeCuda, AWriteThroughAReadOnlyMapBreaksTheWriterOnly) {
  Process owner([](int socket) {
    const Gpu gpu;
    const Allocation allocation = gpu.create(kUnit);
    const DevicePointer at = gpu.map(allocation, kUnit, kReadWrite);
    EXPECT_EQ(gpu.store_word(at, 41, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    send(socket, gpu.export_of(allocation));
    receive(socket);
    EXPECT_EQ(gpu.word(at), 41);
  });
  const int descriptor = receive(owner.socket());
  for (const Write write : kWrites) {
    in_process([&] {
      const Gpu gpu;
      const DevicePointer at = gpu.map(gpu.import_of(descriptor), kUnit, kReadOnly);
      EXPECT_EQ(gpu.word(at), 41);
      EXPECT_EQ(write(gpu, at), kSuccess);
      EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kIllegalAddress);
      DevicePointer more = 0;
      EXPECT_EQ(gpu->memory_allocate(&more, 4), DriverResult::kIllegalAddress);
      EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), DriverResult::kIllegalAddress);
      EXPECT_EQ(gpu->stream_query(gpu.stream), DriverResult::kIllegalAddress);
    });
  }
  send(owner.socket());
  EXPECT_EQ(owner.wait(), 0);
  ::close(descriptor);
}

TEST(FakeCuda, AKernelThatLeavesItsMemoryBreaksItsContext) {
  in_process([] {
    const Gpu gpu;
    EXPECT_EQ(gpu.store_word(gpu.allocate(256) + 256, 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kIllegalAddress);
  });
  in_process([] {
    const Gpu gpu;
    EXPECT_EQ(gpu.store_word(gpu.map(gpu.create(kUnit), kUnit, 0), 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kIllegalAddress);
  });
}

TEST(FakeCuda, TheHostsOwnFaultsEndTheProcess) {
  for (const bool by_instruction : {false, true}) {
    Process process([&](int) {
      (void)std::signal(SIGSEGV, SIG_DFL);  // not that of a sanitizer
      const Gpu gpu;
      if (by_instruction)
        *reinterpret_cast<volatile std::uint32_t*>(gpu.allocate(256) + 256) = 1;
      else
        (void)::raise(SIGSEGV);
    });
    const int status = process.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  }
}

}  // namespace
}  // namespace regroup::fakes::cuda
