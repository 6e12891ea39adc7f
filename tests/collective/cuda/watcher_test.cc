// The watcher stores a word when the work is done and never before, and words what went wrong.
#include "collective/cuda/watcher.h"

#include <gmock/gmock.h>

#include "tests/collective/harness.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::collective::testing::watcher {
namespace {

using base::Status;
using cuda::Mark;
using cuda::Watcher;
using fakes::cuda::Gpu;
using fakes::cuda::Hold;
using fakes::cuda::in_process;
using fakes::cuda::kSuccess;

using Word = std::atomic<std::uint64_t>;

struct Watched {
  explicit Watched(const cuda::Driver& driver) {
    auto started = Watcher::start(driver, [this] { calls += 1; });
    EXPECT_TRUE(started.ok()) << started.status().message();
    watcher = std::move(started).value();
  }

  std::atomic<int> calls = 0;
  std::unique_ptr<Watcher> watcher;
};

Mark mark(Word& word, std::uint64_t value) { return {&word, value, "leaf 5 of step 812", soon()}; }

const auto kNothing = [] { return Status(); };

TEST(Watcher, StoresWhenTheWorkIsDone) {
  in_process([] {
    const Gpu gpu;
    Word word = 0;
    Watched watched(gpu.driver);
    Hold hold(gpu, gpu.stream);
    EXPECT_TRUE(watched.watcher->store_when_done(mark(word, 7), gpu.stream).ok());
    const cuda::Stream other = gpu.new_stream();
    Word second = 0;  // the watcher looks at this one after it has looked at the first
    EXPECT_TRUE(watched.watcher->store_when_done(mark(second, 1), other).ok());
    EXPECT_TRUE(eventually([&] { return second == 1 && watched.calls >= 1; }));
    EXPECT_EQ(word, 0U);
    EXPECT_THAT(watched.watcher->overdue().message(),
                ::testing::StartsWith("GPU 0: leaf 5 of step 812: not done after "));
    hold.release();
    EXPECT_TRUE(eventually([&] { return word == 7 && watched.calls >= 2; }));
    EXPECT_TRUE(watched.watcher->status().ok());
    EXPECT_TRUE(watched.watcher->overdue().ok());
  });
}

TEST(Watcher, WithdrawsTheWordBeforeTheWork) {
  in_process([] {
    const Gpu gpu;
    Word word = 3;
    Watched watched(gpu.driver);
    Hold hold(gpu, gpu.stream);
    const Status status = watched.watcher->overwrite(mark(word, 4), gpu.stream, [&] {
      EXPECT_EQ(word, 0U);
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    hold.release();
    EXPECT_TRUE(eventually([&] { return word == 4; }));
  });
}

// The event of earlier work fires when later work already changes the memory.
TEST(Watcher, StoresNoMarkOfMemoryThatIsOverwritten) {
  in_process([] {
    const Gpu gpu;
    Word word = 0, seen = 0;
    Watched watched(gpu.driver);
    Hold first(gpu, gpu.stream);
    EXPECT_TRUE(watched.watcher->overwrite(mark(word, 1), gpu.stream, kNothing).ok());
    EXPECT_TRUE(watched.watcher->store_when_done(mark(seen, 1), gpu.stream).ok());
    Hold second(gpu, gpu.stream);
    EXPECT_TRUE(watched.watcher->overwrite(mark(word, 2), gpu.stream, kNothing).ok());
    first.release();
    EXPECT_TRUE(eventually([&] { return seen == 1; }));
    EXPECT_EQ(word, 0U);
    second.release();
    EXPECT_TRUE(eventually([&] { return word == 2; }));
  });
}

TEST(Watcher, StoresNothingIfTheLaunchFails) {
  in_process([] {
    const Gpu gpu;
    Word word = 3;
    Watched watched(gpu.driver);
    const Status status = watched.watcher->overwrite(
        mark(word, 4), gpu.stream, [] { return base::internal_error("no launch"); });
    EXPECT_EQ(status.message(), "no launch");
    Word after = 0;
    EXPECT_TRUE(watched.watcher->store_when_done(mark(after, 1), gpu.stream).ok());
    EXPECT_TRUE(eventually([&] { return after == 1; }));
    EXPECT_EQ(word, 0U);
  });
}

TEST(Watcher, AnErrorOfTheDeviceNamesCallAndWork) {
  in_process(
      [] {
        const Gpu gpu;
        Word word = 0;
        Watched watched(gpu.driver);
        const cuda::DevicePointer at = gpu.allocate(4);
        Hold hold(gpu, gpu.stream);                              // work 1
        EXPECT_EQ(gpu.store_word(at, 1, gpu.stream), kSuccess);  // work 2
        EXPECT_TRUE(watched.watcher->store_when_done(mark(word, 1), gpu.stream).ok());
        hold.release();
        EXPECT_TRUE(eventually([&] { return watched.calls >= 1; }));
        const Status status = watched.watcher->status();
        EXPECT_EQ(status.code(), base::Code::kInternal);
        EXPECT_THAT(status.message(),
                    ::testing::StartsWith("GPU 0: leaf 5 of step 812: cuEventQuery: "
                                          "CUDA_ERROR_ILLEGAL_ADDRESS"));
        EXPECT_EQ(watched.watcher->store_when_done(mark(word, 2), gpu.stream).message(),
                  status.message());
        EXPECT_EQ(word, 0U);
      },
      "", "at=2 illegal");
}

TEST(Watcher, WorkThatNeverEndsHasADeadline) {
  in_process([] {
    const Gpu gpu;
    Word word = 0, other = 0;
    Watched watched(gpu.driver);
    Hold hold(gpu, gpu.stream);
    Mark late = mark(word, 1);
    late.deadline = base::SystemClock().now();
    EXPECT_TRUE(watched.watcher->store_when_done(late, gpu.stream).ok());
    EXPECT_TRUE(eventually([&] { return watched.calls >= 1; }));
    EXPECT_EQ(watched.watcher->status().code(), base::Code::kDeadlineExceeded);
    EXPECT_THAT(watched.watcher->status().message(),
                ::testing::MatchesRegex("GPU 0: leaf 5 of step 812: not done after [0-9]+ s"));
    hold.release();
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    EXPECT_FALSE(watched.watcher->store_when_done(mark(other, 1), gpu.stream).ok());
    EXPECT_EQ(word + other, 0U);
  });
}

TEST(Watcher, EndsWhileTheDeviceHangs) {
  in_process([] {
    const Gpu gpu;
    Word word = 0;
    Hold hold(gpu, gpu.stream);
    {
      Watched watched(gpu.driver);
      EXPECT_TRUE(watched.watcher->store_when_done(mark(word, 1), gpu.stream).ok());
    }
    hold.release();
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    EXPECT_EQ(word, 0U);
  });
}

// A word that comes before its event leaves the reader unordered with the writer, and
// ThreadSanitizer sees that through the fake driver.
#ifdef __SANITIZE_THREAD__
void write_and_read(bool early) {
  Gpu gpu;
  if (early)
    gpu.driver.event_query = [](cuda::DriverEvent) { return cuda::DriverResult::kSuccess; };
  static Word word = 0;
  Watched watched(gpu.driver);
  const cuda::DevicePointer at = gpu.allocate(4);
  const Status status = watched.watcher->overwrite(mark(word, 1), gpu.stream, [&] {
    return gpu.driver.status(gpu.store_word(at, 1, gpu.stream), "store");
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(eventually([&] { return word.load(std::memory_order_acquire) == 1; }));
  const cuda::Stream reader = gpu.new_stream();
  const cuda::DevicePointer copy = gpu.allocate(4);
  EXPECT_EQ(gpu->copy_on_device(copy, at, 4, reader), kSuccess);
  EXPECT_EQ(gpu->stream_synchronize(reader), kSuccess);
  EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
}

TEST(Watcher, AWordBeforeItsEventIsARace) {
  constexpr int kExitOfRace = 66;
  for (const bool early : {false, true}) {
    fakes::cuda::Process process([&](int) { write_and_read(early); });
    EXPECT_EQ(process.wait(), early ? kExitOfRace << 8 : 0);
  }
}
#endif

}  // namespace
}  // namespace regroup::collective::testing::watcher
