// How long a member that has a core for itself looks for the others before it sleeps. Threads bind like
// processes.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <semaphore>
#include <thread>

#include "tests/collective/shm_comm.h"

namespace regroup::collective::testing {
namespace {

using namespace std::chrono_literals;

TEST(ShmPatience, IsAsLongAsTheOthersComeInTime) {
  Patience patience(Patience::kMost);
  EXPECT_EQ(patience.now(false), Patience::kMost);
  patience.came_after(Patience::kLate);
  EXPECT_EQ(patience.now(false), Patience::kMost);
  patience.came_after(Patience::kLate + 1ns);
  EXPECT_EQ(patience.now(false), Patience::kLeast);
  EXPECT_EQ(patience.now(true), Patience::kMost);
  patience.came_after(Patience::kLeast);  // says nothing
  EXPECT_EQ(patience.now(false), Patience::kLeast);
  patience.came_after(Patience::kLeast + 1ns);
  EXPECT_EQ(patience.now(false), Patience::kMost);
  EXPECT_EQ(Patience(1us).now(true), 1us);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a chunk takes them longer than a spin
// Rank 1 is late, so rank 0 sleeps at the first rendezvous; at those that follow it looks again first.
TEST(ShmPatience, ASleepIsForOneRendezvousNotForAnOperation) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  constexpr std::size_t kChunks = 256;
  const core::Arena arena = make_arena({.slots = 2});
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank, impatient());
    Bytes in(kChunks << 17);
    Bytes out(in.size());
    ASSERT_TRUE(comm->barrier(soon()).ok());
    long fewest = kChunks;  // others who want the cores make for sleeps too
    for (int round = 0; round < 5; ++round) {
      rusage before{};
      ::getrusage(RUSAGE_THREAD, &before);
      if (rank == 1) std::this_thread::sleep_for(20ms);
      ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon()).ok());
      rusage after{};
      ::getrusage(RUSAGE_THREAD, &after);
      fewest = std::min(fewest, after.ru_nvcsw - before.ru_nvcsw);
    }
    EXPECT_LT(fewest, static_cast<long>(kChunks) / 2) << "rank " << rank;
  });
}

// Rank 1 is a little late at each operation, whether that goes in arrivals, in one chunk or in several.
TEST(ShmPatience, ALittleLateIsNoReasonToSleep) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  constexpr auto kLate = 20us;
  constexpr long kOperations = 200;
  for (const std::size_t bytes : {8, 2048, 256 << 10}) {
    const core::Arena arena = make_arena({.slots = 2});
    run_all(Ranks::kThreads, 2, [&](int rank) {
      bind_to(own_cores()[static_cast<std::size_t>(rank)]);
      const auto comm = open_comm(arena, rank, impatient());
      const Bytes in(bytes);
      Bytes out(bytes);
      long fewest = kOperations;  // others who want the cores make for sleeps too
      for (int round = 0; round < 5; ++round) {
        rusage before{};
        ::getrusage(RUSAGE_THREAD, &before);
        for (long i = 0; i < kOperations; ++i) {
          const auto begin = std::chrono::steady_clock::now();
          while (rank == 1 && std::chrono::steady_clock::now() - begin < kLate) {
          }
          ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon()).ok());
        }
        rusage after{};
        ::getrusage(RUSAGE_THREAD, &after);
        fewest = std::min(fewest, after.ru_nvcsw - before.ru_nvcsw);
      }
      EXPECT_LT(fewest, kOperations / 2) << "rank " << rank << ", " << bytes << " bytes";
    });
  }
}

void be_away(int) {
  const auto end = core::SystemClock().now() + 3ms;
  while (core::SystemClock().now() < end) {
  }
}

// Others take the core from rank 1 again and again. Rank 0, which slept, would lose its own to them each
// time.
TEST(ShmPatience, CountsFromTheLastMove) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  constexpr long kSleeps = 6;  // of some 15 times that rank 1 is away
  struct sigaction action {};
  action.sa_handler = be_away;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  const core::Arena arena = make_arena({.slots = 2});
  std::binary_semaphore begun{0}, ended{0};
  std::atomic<bool> over{false};
  pthread_t late{};
  const auto body = [&](int rank) {
    bind_to(own_cores()[static_cast<std::size_t>(rank)]);
    const auto comm = open_comm(arena, rank);
    const Bytes in(std::size_t{32} << 20);
    Bytes out(in.size());
    ASSERT_TRUE(comm->barrier(soon()).ok());
    if (rank == 1) late = ::pthread_self();
    if (rank == 1) begun.release();
    long fewest = 1000;  // others who want the cores make for sleeps too
    for (int round = 0; round < 12; ++round) {
      rusage before{};
      ::getrusage(RUSAGE_THREAD, &before);
      ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon()).ok());
      rusage after{};
      ::getrusage(RUSAGE_THREAD, &after);
      fewest = std::min(fewest, after.ru_nvcsw - before.ru_nvcsw);
    }
    over = true;
    if (rank == 1) ended.acquire();
    EXPECT_LT(fewest, kSleeps) << "rank " << rank;
  };
  run_all(Ranks::kThreads, 2, body, [&] {
    begun.acquire();
    for (; !over; std::this_thread::sleep_for(3500us)) ASSERT_EQ(::pthread_kill(late, SIGUSR1), 0);
    ended.release();
  });
}
#endif

TEST(ShmPatience, TheDeadlineEndsIt) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  auto least = std::chrono::nanoseconds(1s);
  for (int round = 0; round < 5; ++round) {  // others may want the core
    const core::Arena arena = make_arena({.slots = 2});
    std::binary_semaphore over{0};
    run_all(Ranks::kThreads, 2, [&](int rank) {
      bind_to(own_cores()[static_cast<std::size_t>(rank)]);
      const auto comm = open_comm(arena, rank);
      ASSERT_TRUE(comm->barrier(soon()).ok());
      if (rank == 1) return over.acquire();
      const auto begin = core::SystemClock().now();
      EXPECT_EQ(comm->barrier(begin + 1ms).code(), core::Code::kDeadlineExceeded);
      least = std::min<std::chrono::nanoseconds>(least, core::SystemClock().now() - begin);
      over.release();
    });
  }
  EXPECT_LT(least, Patience::kMost - 1ms);
}

}  // namespace
}  // namespace regroup::collective::testing
