// Order of work on streams of the fake driver, and what happens without it.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "collective/cuda/tree_plan.h"
#include "tests/fakes/cuda/fake.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::fakes::cuda {
namespace {

DevicePointer device_pointer(const void* at) { return reinterpret_cast<DevicePointer>(at); }

TEST(FakeCudaStream, WorkIsDoneInOrder) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(4);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kSuccess);
    Hold hold(gpu, gpu.stream);
    EXPECT_EQ(gpu.store_word(at, 5, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.store_word(at, 6, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kNotReady);
    hold.release();
    EXPECT_EQ(gpu.word(at), 6);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kSuccess);
  });
}

TEST(FakeCudaStream, StreamsDoNotWaitForEachOther) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(4);
    const Stream other = gpu.new_stream();
    Hold hold(gpu, other);
    EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_query(other), kNotReady);
    hold.release();
    EXPECT_EQ(gpu->stream_synchronize(other), kSuccess);
  });
}

TEST(FakeCudaStream, AnEventIsThePositionAtItsRecord) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(4);
    const Stream other = gpu.new_stream();
    for (const unsigned flags : {0U, kBlockingSync, kDisableTiming}) {
      const DriverEvent event = gpu.new_event(flags);
      EXPECT_EQ(gpu->event_query(event), kSuccess);  // never recorded
      EXPECT_EQ(gpu->event_synchronize(event), kSuccess);
      EXPECT_EQ(gpu->event_record(event, gpu.stream), kSuccess);
      Hold first(gpu, gpu.stream);
      EXPECT_EQ(gpu->event_synchronize(event), kSuccess);  // recorded before the work
      EXPECT_EQ(gpu->event_record(event, gpu.stream), kSuccess);
      EXPECT_EQ(gpu->event_query(event), kNotReady);
      // The wait is for the record of now, not for a later one.
      EXPECT_EQ(gpu->stream_wait_event(other, event, 0), kSuccess);
      EXPECT_EQ(gpu.store_word(at, 6, other), kSuccess);
      Hold second(gpu, gpu.stream);
      EXPECT_EQ(gpu->event_record(event, gpu.stream), kSuccess);
      EXPECT_EQ(gpu->stream_query(other), kNotReady);
      first.release();
      EXPECT_EQ(gpu->stream_synchronize(other), kSuccess);
      EXPECT_EQ(gpu->event_query(event), kNotReady);
      second.release();
      EXPECT_EQ(gpu->event_synchronize(event), kSuccess);
      EXPECT_EQ(gpu->event_query(event), kSuccess);
      EXPECT_EQ(gpu.word(at), 6);
      EXPECT_EQ(gpu->event_destroy(event), kSuccess);
      EXPECT_EQ(gpu->event_query(event), kInvalidHandle);
    }
  });
}

TEST(FakeCudaStream, EventsMeasureTime) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(8);
    const DriverEvent begin = gpu.new_event(0), end = gpu.new_event(0);
    const DriverEvent untimed = gpu.new_event(kDisableTiming);
    float milliseconds = -1;
    EXPECT_EQ(gpu->event_elapsed(&milliseconds, begin, end), kInvalidHandle);
    EXPECT_EQ(gpu->event_record(begin, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.store_time(at, 20'000'000, gpu.stream), kSuccess);
    Hold hold(gpu, gpu.stream);
    EXPECT_EQ(gpu->event_record(end, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->event_record(untimed, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->event_elapsed(&milliseconds, begin, end), kNotReady);
    hold.release();
    EXPECT_EQ(gpu->event_synchronize(untimed), kSuccess);
    EXPECT_EQ(gpu->event_elapsed(&milliseconds, begin, end), kSuccess);
    EXPECT_GE(milliseconds, 20);
    EXPECT_EQ(gpu->event_elapsed(&milliseconds, begin, untimed), kInvalidHandle);
  });
}

TEST(FakeCudaStream, CopiesOfPinnedMemoryAreAsynchronous) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(8);
    Pinned pinned(gpu, 2);
    Hold hold(gpu, gpu.stream);
    EXPECT_EQ(gpu->copy_to_device(at, pinned.words.data(), 4, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->copy_to_host(&pinned.words[1], at, 4, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kNotReady);
    EXPECT_EQ(pinned.words[1], 0);
    pinned.words[0] = 9;  // before the copy is done
    hold.release();
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    EXPECT_EQ(pinned.words[1], 9);
    // A range that is pinned in part is refused.
    EXPECT_EQ(gpu->copy_to_host(&pinned.words[1], at, 8, gpu.stream), kInvalidValue);
  });
}

TEST(FakeCudaStream, CopiesOfPageableMemoryAreStaged) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(16);
    std::uint32_t source = 3, target = 0;
    Hold hold(gpu, gpu.stream);
    EXPECT_EQ(gpu->copy_to_device(at, &source, 4, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kNotReady);
    source = 4;  // the driver has read it
    hold.release();
    EXPECT_EQ(gpu->copy_to_host(&target, at, 4, gpu.stream), kSuccess);
    EXPECT_EQ(target, 3);  // without a wait
    EXPECT_EQ(gpu->copy_on_device(at + 4, at, 4, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.word(at + 4), 3);
    EXPECT_EQ(gpu->copy_to_device(device_pointer(&target), &source, 4, gpu.stream), kInvalidValue);
    EXPECT_EQ(gpu->copy_to_host(&target, device_pointer(&source), 4, gpu.stream), kInvalidValue);
  });
}

TEST(FakeCudaStream, PinnedMemoryIsRegisteredOnce) {
  in_process([] {
    const Gpu gpu;
    Pinned pinned(gpu, 8);
    EXPECT_EQ(gpu->host_register(&pinned.words[4], 4, 0), kAlreadyRegistered);
    EXPECT_EQ(gpu->host_unregister(&pinned.words[4]), kNotRegistered);
    EXPECT_EQ(gpu->host_register(reinterpret_cast<void*>(4096), 4096, 0), kInvalidValue);
  });
}

TEST(FakeCudaStream, TheDefaultStreamIsOrderedWithBlockingStreams) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(8);
    Stream blocking = nullptr;
    EXPECT_EQ(gpu->stream_create(&blocking, 0, 0), kSuccess);
    Hold ordered(gpu, blocking), other(gpu, gpu.stream);
    EXPECT_EQ(gpu.store_word(at, 7, blocking), kSuccess);
    EXPECT_EQ(gpu.store_word(at, 1, nullptr), kSuccess);                // after the 7
    EXPECT_EQ(gpu->copy_on_device(at + 4, at, 4, blocking), kSuccess);  // after the 1
    EXPECT_EQ(gpu->stream_query(nullptr), kNotReady);
    ordered.release();
    EXPECT_EQ(gpu->stream_synchronize(nullptr), kSuccess);
    EXPECT_EQ(gpu->stream_query(blocking), kSuccess);
    EXPECT_EQ(gpu->stream_query(nullptr), kSuccess);
    EXPECT_EQ(gpu->stream_query(gpu.stream), kNotReady);
    other.release();
    EXPECT_EQ(gpu.word(at + 4), 1);
  });
}

TEST(FakeCudaStream, ADestroyedStreamFinishesItsWork) {
  in_process([] {
    const Gpu gpu;
    const DevicePointer at = gpu.allocate(8);
    const Stream stream = gpu.new_stream();
    const DriverEvent event = gpu.new_event(kDisableTiming);
    Hold hold(gpu, stream);
    EXPECT_EQ(gpu.store_word(at, 2, stream), kSuccess);
    EXPECT_EQ(gpu->event_record(event, stream), kSuccess);
    EXPECT_EQ(gpu->stream_destroy(stream), kSuccess);
    EXPECT_EQ(gpu->event_query(event), kNotReady);
    EXPECT_EQ(gpu->stream_query(stream), kInvalidHandle);
    EXPECT_EQ(gpu->stream_destroy(stream), kInvalidHandle);
    hold.release();
    EXPECT_EQ(gpu->event_synchronize(event), kSuccess);
    EXPECT_EQ(gpu.word(at), 2);
    EXPECT_EQ(gpu->stream_destroy(nullptr), kInvalidHandle);
  });
}

TEST(FakeCudaStream, MemoryIsFreedAfterTheWorkOnIt) {
  in_process([] {
    const Gpu gpu;
    const Allocation allocation = gpu.create(2 << 20);
    const DevicePointer mapped = gpu.map(allocation, 2 << 20, kReadWrite);
    EXPECT_EQ(gpu.store_time(mapped, 20'000'000, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->unmap(mapped, 2 << 20), kSuccess);
    const DevicePointer block = gpu.allocate(8);
    EXPECT_EQ(gpu.store_time(block, 20'000'000, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->memory_free(block), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
  });
}

TEST(FakeCudaStream, ACapturedStreamDoesNoWork) {
  in_process([] {
    const Gpu gpu;
    const auto set_capture = fake_function<SetCapture>(kSetCapture);
    const DevicePointer at = gpu.allocate(4);
    const DriverEvent event = gpu.new_event(0);
    int status = -1;
    EXPECT_EQ(gpu->stream_is_capturing(gpu.stream, &status), kSuccess);
    EXPECT_EQ(status, 0);
    const Stream captured = gpu.new_stream();
    set_capture(captured, 1);
    EXPECT_EQ(gpu->stream_is_capturing(captured, &status), kSuccess);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(gpu.store_word(at, 1, captured), kSuccess);
    EXPECT_EQ(gpu->event_record(event, captured), kSuccess);
    EXPECT_EQ(gpu->event_query(event), kCapturedEvent);
    EXPECT_EQ(gpu->stream_query(captured), kCaptureUnsupported);
    EXPECT_EQ(gpu->stream_is_capturing(captured, &status), kSuccess);
    EXPECT_EQ(status, 2);
    EXPECT_EQ(gpu.store_word(at, 1, captured), kCaptureInvalidated);
    set_capture(captured, 0);
    EXPECT_EQ(gpu->stream_synchronize(captured), kSuccess);
    EXPECT_EQ(gpu.word(at), 0);
    Stream blocking = nullptr;
    EXPECT_EQ(gpu->stream_create(&blocking, 0, 0), kSuccess);
    set_capture(blocking, 1);
    EXPECT_EQ(gpu.store_word(at, 1, nullptr), kCaptureImplicit);
  });
}

struct Words {
  std::uint32_t first;
  std::uint32_t step;
};

void count_up(const Grid& grid, DevicePointer at, Words words) {
  auto* out = reinterpret_cast<std::uint32_t*>(at);
  for (std::uint32_t i = 0; i < grid.blocks[0] * grid.threads[0]; ++i)
    out[i] = words.first + i * words.step;
}
constexpr Kernel kCountUp = kernel<count_up>("count_up");

TEST(FakeCudaStream, KernelsAreFunctionsOfTheHost) {
  in_process([] {
    const Gpu gpu;
    Module module = nullptr;
    Function function = nullptr;
    EXPECT_EQ(gpu->module_load(&module, nullptr), kInvalidValue);
    EXPECT_EQ(gpu->module_load(&module, "any image"), kSuccess);
    EXPECT_EQ(gpu->module_function(&function, module, "count_up"), kNotFound);
    fake_function<AddKernel>(kAddKernel)(&kCountUp);
    EXPECT_EQ(gpu->module_function(&function, module, "count_up"), kSuccess);
    DevicePointer at = gpu.allocate(24);
    Words words{10, 2};
    void* parameters[] = {&at, &words};
    const auto launch = [&](unsigned threads, void** with, void** extra) {
      return gpu->launch(function, 2, 1, 1, threads, 1, 1, 0, gpu.stream, with, extra);
    };
    EXPECT_EQ(launch(3, parameters, nullptr), kSuccess);
    words.first = 0;  // the launch has a copy
    EXPECT_EQ(gpu.word(at + 20), 20);
    EXPECT_EQ(launch(0, parameters, nullptr), kInvalidValue);
    EXPECT_EQ(launch(1025, parameters, nullptr), kInvalidValue);
    EXPECT_EQ(launch(1, nullptr, nullptr), kInvalidValue);
    EXPECT_EQ(launch(1, parameters, parameters), kNotSupported);
    function = nullptr;
    EXPECT_EQ(launch(1, parameters, nullptr), kInvalidHandle);
  });
}

TEST(FakeCudaStream, TheProductsKernelsAreThere) {
  in_process([] {
    const Gpu gpu;
    constexpr std::size_t kCount = 5;
    const DevicePointer at = gpu.allocate(4 * 64);
    const void* inputs[3];
    for (int i = 0; i < 3; ++i) {
      float values[kCount];
      for (std::size_t k = 0; k < kCount; ++k) values[k] = float(100 * i + int(k));
      EXPECT_EQ(gpu->copy_to_device(at + 64 * i, values, sizeof values, gpu.stream), kSuccess);
      inputs[i] = reinterpret_cast<void*>(at + 64 * i);
    }
    const std::vector<proto::Interval> leaves{{0, 1}, {1, 2}, {2, 3}};
    const auto plan = collective::cuda::TreePlan::compile(leaves, 3);
    ASSERT_TRUE(plan.ok());
    const auto launch_into = [&](DevicePointer result, unsigned threads) {
      collective::cuda::TreeArguments arguments = plan->arguments_of(
          0, {inputs, {}, reinterpret_cast<void*>(result), kCount}, collective::Op::kSum);
      void* parameters[] = {&arguments};
      return gpu->launch(
          gpu.function(plan->kernel_of(0, collective::Dtype::kFloat32, collective::Op::kSum)), 2, 1,
          1, threads, 1, 1, 0, gpu.stream, parameters, nullptr);
    };
    EXPECT_EQ(launch_into(at + 192, 257), kInvalidValue);  // more than its launch bound
    EXPECT_EQ(launch_into(at + 192, 256), kSuccess);
    float sum[kCount] = {};
    EXPECT_EQ(gpu->copy_to_host(sum, at + 192, sizeof sum, gpu.stream), kSuccess);
    EXPECT_THAT(sum, ::testing::ElementsAre(300, 303, 306, 309, 312));
    EXPECT_EQ(launch_into(at + 256, 32), kSuccess);  // past the end
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), DriverResult::kIllegalAddress);
  });
}

// What ThreadSanitizer is to find: all programs that use the fake rely on it.
#ifdef __SANITIZE_THREAD__
constexpr int kExitOfRace = 66;

void write_and_read(const Gpu& gpu, bool with_wait) {
  Pinned pinned(gpu, 1);
  const DevicePointer at = gpu.allocate(4);
  EXPECT_EQ(gpu->copy_to_host(pinned.words.data(), at, 4, gpu.stream), kSuccess);
  if (with_wait) (void)gpu->stream_synchronize(gpu.stream);
  // Calls that wait for nothing, when the copy has long been done.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);
  EXPECT_EQ(gpu->event_record(gpu.new_event(0), gpu.stream), kSuccess);
  EXPECT_EQ(pinned.words[0], 0);
}

TEST(FakeCudaStream, AMissingWaitOfTheHostIsARace) {
  for (const bool with_wait : {true, false}) {
    Process process([&](int) { write_and_read(Gpu(), with_wait); });
    EXPECT_EQ(process.wait(), with_wait ? 0 : kExitOfRace << 8);
  }
}

TEST(FakeCudaStream, AMissingWaitOfAStreamIsARace) {
  for (const bool with_wait : {true, false}) {
    Process process([&](int) {
      const Gpu gpu;
      const DevicePointer at = gpu.allocate(4);
      const Stream other = gpu.new_stream();
      const DriverEvent event = gpu.new_event(kDisableTiming);
      EXPECT_EQ(gpu->set_bytes(at, 1, 4, gpu.stream), kSuccess);
      EXPECT_EQ(gpu->event_record(event, gpu.stream), kSuccess);
      if (with_wait) (void)gpu->stream_wait_event(other, event, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(gpu->set_bytes(at, 2, 4, other), kSuccess);
      EXPECT_EQ(gpu->stream_synchronize(other), kSuccess);
      EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    });
    EXPECT_EQ(process.wait(), with_wait ? 0 : kExitOfRace << 8);
  }
}
#endif

}  // namespace
}  // namespace regroup::fakes::cuda
