// The doorbell on real futexes: deadlines, and sleepers in this and in another process. All
// interleavings: tests/model/.
#include "shmem/doorbell.h"
#include "base/clock.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>

namespace regroup::shmem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

base::TimePoint in(base::Duration duration) { return base::SystemClock().now() + duration; }

TEST(Doorbell, ReadyAtOnceNeedsNoRing) {
  Doorbell<RealPolicy> bell;
  EXPECT_TRUE(wait_until(
      bell, [] { return true; }, base::TimePoint()));
  EXPECT_EQ(bell.sleeping, 0U);
}

TEST(Doorbell, DeadlineEndsTheSleep) {
  Doorbell<RealPolicy> bell;
  const base::TimePoint start = base::SystemClock().now();
  EXPECT_FALSE(wait_until(
      bell, [] { return false; }, start + milliseconds(20)));
  EXPECT_GE(base::SystemClock().now() - start, milliseconds(20));
  EXPECT_EQ(bell.sleeping, 0U);
}

TEST(Doorbell, ARingWithoutTheConditionIsSleptThrough) {
  Doorbell<RealPolicy> bell;
  ring(bell);
  EXPECT_FALSE(wait_until(
      bell, [] { return false; }, in(milliseconds(5))));
}

TEST(Doorbell, PingPongOfTwoThreadsLosesNoRing) {
  struct Side {
    Doorbell<RealPolicy> bell;
    std::atomic<unsigned> ball{0};
  } sides[2];
  constexpr unsigned kRounds = 20000;
  const auto play = [&](Side& mine, Side& theirs, bool serves) {
    for (unsigned round = 1; round <= kRounds; ++round) {
      if (serves) theirs.ball.store(round, std::memory_order_release), ring(theirs.bell);
      if (!wait_until(
              mine.bell, [&] { return mine.ball.load(std::memory_order_acquire) >= round; },
              in(seconds(30))))
        return false;
      if (!serves) theirs.ball.store(round, std::memory_order_release), ring(theirs.bell);
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = play(sides[1], sides[0], false); });
  EXPECT_TRUE(play(sides[0], sides[1], true));
  thread.join();
  EXPECT_TRUE(other);
}

TEST(Doorbell, WakesAnotherProcess) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  struct Shared {
    Doorbell<RealPolicy> bell;
    std::atomic<unsigned> data{0};
  };
  auto* shared = new (memory) Shared;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool woken = wait_until(
        shared->bell, [&] { return shared->data.load(std::memory_order_acquire) != 0; },
        in(seconds(30)));
    ::_exit(woken ? 0 : 1);
  }
  const base::TimePoint deadline = in(seconds(30));
  while (shared->bell.sleeping.load() == 0 && base::SystemClock().now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(shared->bell.sleeping, 1U);
  shared->data.store(1, std::memory_order_release);
  ring(shared->bell);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::munmap(memory, 4096);
}

}  // namespace
}  // namespace regroup::shmem
