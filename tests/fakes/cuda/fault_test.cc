// Faults of the fake driver: each ends what it would end on a card, and nothing else.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/fakes/cuda/fake.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::fakes::cuda {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// A name for a state file, which is removed at the end.
class StateFile {
 public:
  StateFile() {
    path_ = std::filesystem::temp_directory_path() / "regroup-fake-XXXXXX";
    ::close(::mkstemp(path_.data()));
    std::filesystem::remove(path_);
  }
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile() { std::filesystem::remove(path_); }

  [[nodiscard]] std::string setting() const { return "state=" + path_; }

 private:
  std::string path_;
};

struct Sticky {
  const char* kind;
  DriverResult result;
};

TEST(FakeCudaFault, AnErrorOfWorkStaysWithItsContext) {
  for (const Sticky& fault :
       {Sticky{"illegal", DriverResult::kIllegalAddress}, Sticky{"assert", DriverResult::kAssert},
        Sticky{"ecc", DriverResult::kEccUncorrectable}}) {
    in_process(
        [&] {
          const Gpu gpu;
          const DevicePointer at = gpu.allocate(12);
          EXPECT_EQ(gpu->set_bytes(at, 1, 12, gpu.stream), kSuccess);  // work 1
          EXPECT_EQ(gpu.word(at), 0x01010101);                         // 2
          const Stream other = gpu.new_stream();
          const DriverEvent event = gpu.new_event(kBlockingSync);
          Hold hold(gpu, gpu.stream);                              // 3
          EXPECT_EQ(gpu.store_word(at, 2, gpu.stream), kSuccess);  // 4
          EXPECT_EQ(gpu->event_record(event, gpu.stream), kSuccess);
          hold.release();
          EXPECT_EQ(gpu->event_synchronize(event), fault.result);
          EXPECT_EQ(gpu->event_query(event), fault.result);
          EXPECT_EQ(gpu->stream_query(other), fault.result);
          EXPECT_EQ(gpu->stream_synchronize(other), fault.result);
          EXPECT_EQ(gpu.store_word(at, 2, other), fault.result);
          EXPECT_EQ(gpu->memory_free(at), fault.result);
          std::size_t bytes = 0;
          EXPECT_EQ(gpu->memory_info(&bytes, &bytes), fault.result);
          EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(at), 0x01010101);  // the work is not done
          Context again = nullptr;
          EXPECT_EQ(gpu->primary_context_retain(&again, 0), fault.result);
          int count = 0;
          EXPECT_EQ(gpu->device_count(&count), kSuccess);
        },
        "", std::string("at=4 ") + fault.kind);
  }
}

TEST(FakeCudaFault, AWaitEndsWithAnotherStreamsError) {
  in_process(
      [] {
        const Gpu gpu;
        const DevicePointer at = gpu.allocate(4);
        Hold hold(gpu, gpu.stream);
        EXPECT_EQ(gpu.store_word(at, 2, gpu.new_stream()), kSuccess);
        EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kAssert);
        hold.release();
      },
      "", "at=2 assert");
}

TEST(FakeCudaFault, ALostDeviceIsLostToAllProcesses) {
  const StateFile state;
  Process neighbour(
      [](int socket) {
        const Gpu gpu;
        const DevicePointer at = gpu.allocate(4);
        Hold hold(gpu, gpu.stream);
        send(socket);
        EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kUnknown);  // in the midst of its work
        EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kUnknown);
        hold.release();
      },
      state.setting() + "; devices=2");
  receive(neighbour.socket());
  in_process(
      [] {
        const Gpu gpu;
        EXPECT_EQ(gpu.store_word(gpu.allocate(4), 1, gpu.stream), kSuccess);
        EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kLaunchFailed);
      },
      state.setting() + "; devices=2", "at=1 lost");
  EXPECT_EQ(neighbour.wait(), 0);
  in_process(
      [] {
        const Driver driver = load_fake();
        EXPECT_EQ(driver.init(0), kSuccess);
        Context context = nullptr;
        EXPECT_EQ(driver.primary_context_retain(&context, 0), kUnknown);
        AllocationProperties properties;
        Allocation allocation = 0;
        EXPECT_EQ(driver.allocation_create(&allocation, 2 * kMiB, &properties, 0), kUnknown);
        properties.location.device = 1;  // the other one works
        EXPECT_EQ(driver.allocation_create(&allocation, 2 * kMiB, &properties, 0), kSuccess);
        EXPECT_EQ(driver.primary_context_retain(&context, 1), kSuccess);
      },
      state.setting() + "; devices=2");
}

TEST(FakeCudaFault, AHungStreamHasNoEndAndOthersGoOn) {
  Process process(
      [](int socket) {
        const Gpu gpu;
        const DevicePointer at = gpu.allocate(4);
        const Stream other = gpu.new_stream();
        EXPECT_EQ(gpu.store_word(at, 1, other), kSuccess);
        EXPECT_EQ(gpu.store_word(at, 2, other), kSuccess);
        EXPECT_EQ(gpu.word(at), 0);
        EXPECT_EQ(gpu->stream_query(other), kNotReady);
        send(socket);
        (void)gpu->stream_synchronize(other);
        send(socket);
      },
      "", "at=1 hang");
  receive(process.socket());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(has_message(process.socket()));
  process.kill();
}

TEST(FakeCudaFault, SlowWorkTakesAMultipleOfItsTime) {
  in_process(
      [] {
        const Gpu gpu;
        const DevicePointer at = gpu.allocate(8);
        const DriverEvent begin = gpu.new_event(0), end = gpu.new_event(0);
        EXPECT_EQ(gpu->event_record(begin, gpu.stream), kSuccess);
        EXPECT_EQ(gpu.store_time(at, 5'000'000, gpu.stream), kSuccess);
        EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);  // at least 10 us, 40 times
        EXPECT_EQ(gpu->event_record(end, gpu.stream), kSuccess);
        EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
        float milliseconds = 0;
        EXPECT_EQ(gpu->event_elapsed(&milliseconds, begin, end), kSuccess);
        EXPECT_GE(milliseconds, 200.3);
        EXPECT_EQ(gpu.word(at), 1);
      },
      "", "at=1 slow=40");
}

TEST(FakeCudaFault, AnAllocationFindsNoMemory) {
  in_process(
      [] {
        const Gpu gpu;
        const DevicePointer first = gpu.allocate(4);
        DevicePointer at = 0;
        EXPECT_EQ(gpu->memory_allocate(&at, 4), kOutOfMemory);
        const AllocationProperties properties;
        Allocation allocation = 0;
        EXPECT_EQ(gpu->allocation_create(&allocation, 2 * kMiB, &properties, 0), kOutOfMemory);
        EXPECT_EQ(gpu->allocation_create(&allocation, 2 * kMiB, &properties, 0), kSuccess);
        EXPECT_EQ(gpu.store_word(first, 1, gpu.stream), kSuccess);
        EXPECT_EQ(gpu.word(first), 1);
      },
      "", "at=2 oom; at=3 oom");
}

TEST(FakeCudaFault, ProcessesShareTheMemoryOfADevice) {
  const StateFile state;
  const std::string settings = state.setting() + "; memory=16M";
  const auto free_bytes = [&] {
    std::size_t free = 0;
    Process process(
        [](int socket) {
          const Gpu gpu;
          std::size_t bytes[2] = {};
          EXPECT_EQ(gpu->memory_info(&bytes[0], &bytes[1]), kSuccess);
          EXPECT_EQ(::write(socket, bytes, sizeof bytes[0]), ssize_t(sizeof bytes[0]));
        },
        settings);
    EXPECT_EQ(::read(process.socket(), &free, sizeof free), ssize_t(sizeof free));
    EXPECT_EQ(process.wait(), 0);
    return free;
  };
  EXPECT_EQ(free_bytes(), 16 * kMiB);
  Process holder(
      [](int socket) {
        const Gpu gpu;
        const DevicePointer block = gpu.allocate(4 * kMiB);
        const Allocation allocation = gpu.create(6 * kMiB);
        DevicePointer more = 0;
        EXPECT_EQ(gpu->memory_allocate(&more, 7 * kMiB), kOutOfMemory);
        send(socket);
        receive(socket);
        EXPECT_EQ(gpu->memory_free(block), kSuccess);
        EXPECT_EQ(gpu->allocation_release(allocation), kSuccess);
        send(socket);
        receive(socket);
      },
      settings);
  receive(holder.socket());
  EXPECT_EQ(free_bytes(), 6 * kMiB);
  send(holder.socket());
  receive(holder.socket());
  EXPECT_EQ(free_bytes(), 16 * kMiB);
  Process killed(
      [](int socket) {
        const Gpu gpu;
        (void)gpu.allocate(16 * kMiB);
        send(socket);
        receive(socket);
      },
      settings);
  receive(killed.socket());
  EXPECT_EQ(free_bytes(), 0);
  killed.kill();
  EXPECT_NE(killed.wait(), 0);
  EXPECT_EQ(free_bytes(), 16 * kMiB);
  send(holder.socket());
  EXPECT_EQ(holder.wait(), 0);
}

}  // namespace
}  // namespace regroup::fakes::cuda
