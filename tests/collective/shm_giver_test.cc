// Members that leave an operation before the others have come: what goes wrong, and that nobody who is slow
// reads what was written later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

using namespace std::chrono_literals;
using core::Code;

constexpr int kSize = 3;
constexpr int kAbsent = 2;

std::unique_ptr<Communicator> open_comm(const core::Arena& arena, int slot) {
  auto comm = make_shm(arena, make_world(1, kSize), {0, static_cast<core::SlotIndex>(slot)});
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// Of one copy, in the arrival and in the stage.
class ShmGiver : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ShmGiver, LearnsInItsNextOperationWhoNeverCame) {
  const core::Arena arena = make_arena({.slots = kSize});
  std::counting_semaphore<kSize> over{0};
  run_all(Ranks::kThreads, kSize, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    Bytes data(GetParam());
    ASSERT_EQ(comm->broadcast(data, 1, soon()).to_string(), "ok");
    ASSERT_TRUE(comm->barrier(soon()).ok());
    if (rank == kAbsent) {
      for (int i = 0; i < kSize - 1; ++i) over.acquire();
      return;
    }
    const bool gives = rank == 1 && data.size() <= 128 << 10;
    const auto soon_enough = [] { return core::SystemClock().now() + 50ms; };
    core::Status status = comm->broadcast(data, 1, soon_enough());
    EXPECT_EQ(status.ok(), gives) << status.to_string();
    if (gives) status = comm->barrier(soon_enough());
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    EXPECT_THAT(status.message(), ::testing::HasSubstr("broadcast: rank 2 of 3 did not arrive"));
    over.release();
  });
}

TEST_P(ShmGiver, IsNotAheadOfASlowReaderByMoreThanOneOperation) {
  constexpr int kRounds = 20;
  const core::Arena arena = make_arena({.slots = kSize});
  run_all(Ranks::kThreads, kSize, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    for (int round = 0; round < kRounds; ++round) {
      if (rank != 1 && round % 3 == rank) std::this_thread::sleep_for(2ms);
      Bytes data(GetParam(), rank == 1 ? std::byte(round) : std::byte(0xff));
      ASSERT_EQ(comm->broadcast(data, 1, soon()).to_string(), "ok");
      const auto wrong = std::ranges::count_if(data, [&](std::byte b) { return b != std::byte(round); });
      ASSERT_EQ(wrong, 0) << "round " << round;
      std::ranges::fill(data, std::byte(0xee));  // the root's too: nobody reads it any more
      if (round != kRounds / 2) continue;
      ASSERT_TRUE(comm->split(rank % 2, soon()).ok());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bytes, ShmGiver, ::testing::Values(40, 1000, 16'000, 300'000));

}  // namespace
}  // namespace regroup::collective::testing
