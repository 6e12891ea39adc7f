// Members that leave an operation before their peers arrive: errors surface in their next
// operation, and a slow reader never sees data that was written later.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

#include "base/clock.h"
#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_eager_exit {
namespace {

using namespace std::chrono_literals;
using base::Code;

struct Case {
  std::size_t bytes;
  int ranks = 3;
  shm::InlineMode inline_mode = shm::InlineMode::kAuto;
  shm::StorePolicy store_policy = shm::StorePolicy::kTuned;
};

// The last rank but one is the root; the last one is absent where a rank is.
class ShmEagerExit : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] static std::unique_ptr<Communicator> open_comm(const shmem::Arena& arena,
                                                               int slot) {
    shm::ShmOptions options;
    options.inline_mode = GetParam().inline_mode;
    options.store_policy = GetParam().store_policy;
    auto comm = shm::make_shm(arena, make_world(1, static_cast<std::uint32_t>(GetParam().ranks)),
                              {0, static_cast<proto::SlotIndex>(slot)}, {}, options);
    EXPECT_TRUE(comm.ok()) << comm.status().to_string();
    return std::move(comm).value();
  }

  // A reader gives up when the root has arrived, which has so much time.
  const base::Duration patience_ = GetParam().ranks > 2 ? 1s : 50ms;
  const int ranks_ = GetParam().ranks;
  const int root_ = ranks_ - 2;
  const int absent_ = ranks_ - 1;
  const shmem::Arena arena_ = make_arena({.slots = static_cast<std::uint32_t>(ranks_)});
};

TEST_P(ShmEagerExit, ReportsTheMissingRankInItsNextOperation) {
  std::counting_semaphore<> over{0};
  run_all(Ranks::kThreads, ranks_, [&](int rank) {
    const auto comm = open_comm(arena_, rank);
    Bytes data(GetParam().bytes);
    ASSERT_EQ(comm->broadcast(data, root_, soon()).to_string(), "ok");
    ASSERT_TRUE(comm->barrier(soon()).ok());
    if (rank == absent_) {
      for (int i = 0; i < ranks_ - 1; ++i) over.acquire();
      return;
    }
    const bool gives = rank == root_ && data.size() <= 128 << 10;
    const auto soon_enough = [&] { return base::SystemClock().now() + patience_; };
    base::Status status = comm->broadcast(data, root_, soon_enough());
    EXPECT_EQ(status.ok(), gives) << status.to_string();
    if (gives) status = comm->barrier(soon_enough());
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    const std::string missing =
        fmt::format("broadcast: rank {} of {} did not arrive", absent_, ranks_);
    EXPECT_THAT(status.message(), ::testing::HasSubstr(missing));
    over.release();
  });
}

// Readers are late, and so is the root; or a reader does not wait in the call that starts the
// operation.
TEST_P(ShmEagerExit, IsNotAheadOfASlowReaderByMoreThanOneOperation) {
  constexpr int kRounds = 40;
  run_all(Ranks::kThreads, ranks_, [&](int rank) {
    const auto comm = open_comm(arena_, rank);
    for (int round = 0; round < kRounds; ++round) {
      if (round % (ranks_ + 1) == rank) std::this_thread::sleep_for(2ms);
      Bytes data(GetParam().bytes, rank == root_ ? std::byte(round) : std::byte(0xff));
      if (rank != root_ && round % 5 == 4) {
        auto request = comm->start(Operation::broadcast(data, root_), soon());
        ASSERT_TRUE(request.ok()) << request.status().to_string();
        ASSERT_EQ(request->wait().to_string(), "ok");
      } else {
        ASSERT_EQ(comm->broadcast(data, root_, soon()).to_string(), "ok");
      }
      const auto wrong =
          std::ranges::count_if(data, [&](std::byte b) { return b != std::byte(round); });
      ASSERT_EQ(wrong, 0) << "round " << round;
      std::ranges::fill(data, std::byte(0xee));  // at the root too: nobody reads it any more
      if (round != kRounds / 2) continue;
      ASSERT_TRUE(comm->split(rank % 2, soon()).ok());
    }
  });
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  static constexpr const char* kModes[] = {"", "InlineChunks", "InChunks"};
  return fmt::format("{}BytesFor{}{}{}", info.param.bytes, info.param.ranks,
                     kModes[static_cast<std::size_t>(info.param.inline_mode)],
                     info.param.store_policy == shm::StorePolicy::kStream ? "PastTheCache" : "");
}

// In the arrival, in inline chunks, in one chunk, in several. Two ranks use another path for small
// data.
INSTANTIATE_TEST_SUITE_P(
    Cases, ShmEagerExit,
    ::testing::Values(Case{40}, Case{1000}, Case{16'000}, Case{300'000}, Case{40, 2}, Case{90, 2},
                      Case{1000, 2}, Case{4096, 2}, Case{16'000, 2}, Case{300'000, 2},
                      Case{1000, 2, shm::InlineMode::kAlways}, Case{90, 2, shm::InlineMode::kNever},
                      Case{1000, 3, shm::InlineMode::kAlways},
                      Case{1000, 3, shm::InlineMode::kNever},
                      Case{1000, 2, shm::InlineMode::kNever, shm::StorePolicy::kStream},
                      Case{16'000, 2, shm::InlineMode::kAuto, shm::StorePolicy::kStream}),
    name_of_case);

}  // namespace
}  // namespace regroup::collective::testing::shm_eager_exit
