// State and results of a state transfer: what a learner takes, and what does not pass for it.
// docs/design/catch_up.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "base/crc32c.h"
#include "elastic/state_donation.h"
#include "proto/transfer_step.h"
#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using base::Code;
using base::Result;
using collective::testing::eventually;
using proto::SlotIndex;
using proto::Step;
using proto::TransferStep;
using shmem::kSnapshotChunk;
using testing::Agent;
using testing::Bytes;
using testing::random_bytes;
using testing::start;

constexpr TransferStep kMark{5, 7};

class TransferTest : public ::testing::Test {
 protected:
  // Slots 0 and 1, of which one got its state in this World, pass step 7; then `damage`; then slot
  // 2 learns from what the agent announces.
  Result<Step> learn_after(const std::function<void()>& damage) {
    std::atomic<bool> damaged{false};
    Result<Step> learned = Step{0};
    std::vector<std::jthread> members;
    for (const SlotIndex slot : {0, 1}) {
      members.push_back(start(agent_, slot, [&](Participant& self) {
        EXPECT_TRUE(donate_to_transfer(self, donor_, 6).ok());  // another step: nothing is written
        EXPECT_EQ(self.own_slot().donated_step.load(), 0U);
        EXPECT_EQ(self.world().members.size(), 2U);
        EXPECT_TRUE(donate_to_transfer(self, donor_, 7).ok());
      }));
    }
    std::jthread learner = start(agent_, 2, [&](Participant& self) {
      EXPECT_TRUE(eventually([&] { return damaged.load(); }));
      learned = load_snapshot(self, learner_);
    });
    agent_.welcome_all();
    agent_.arena().snapshot_at().store(kMark.pack());
    agent_.announce(1, {0}, {1});
    members.clear();
    for (const SlotIndex slot : {0, 1})
      EXPECT_EQ(agent_.member_slot(slot).donated_step.load(), kMark.pack());
    agent_.announce(2, {0, 1}, {2});
    agent_.member_slot(2).transfer.store(kMark.pack());
    damage();
    damaged = true;
    learner.join();
    EXPECT_EQ(agent_.member_slot(2).using_snapshot.load(), 0U);
    return learned;
  }

  static constexpr std::size_t kSize = 3 * kSnapshotChunk - 5;
  Agent agent_{3, kSize};
  Bytes donor_{random_bytes(kSize, 1)};
  Bytes learner_;
};

TEST_F(TransferTest, ALearnerHasTheBytesOfAllWhoPassedTheStep) {
  const auto step = learn_after([] {});
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(*step, 7U);
  EXPECT_TRUE(learner_.bytes() == donor_.bytes());
  EXPECT_EQ(agent_.member_slot(2).replayed.load(), kMark.pack());
}

TEST_F(TransferTest, OneWrongBitIsFoundAndTold) {
  const auto step = learn_after([&] { agent_.arena().snapshot()[kSize - 1] ^= std::byte{4}; });
  EXPECT_EQ(step.code(), Code::kDataLoss);
  EXPECT_EQ(learner_.loads, 0);
  EXPECT_EQ(TransferStep::unpack(agent_.member_slot(2).replayed.load()), (TransferStep{5, 0}));
}

TEST_F(TransferTest, ADamagedLengthIsFound) {
  const auto step = learn_after([&] { agent_.arena().snapshot_used().store(kSize + 1); });
  EXPECT_EQ(step.code(), Code::kDataLoss);
  EXPECT_EQ(learner_.loads, 0);
}

TEST_F(TransferTest, AStateThatLandsWrongIsNotProved) {
  learner_.on_load = [](std::vector<std::byte>& bytes) { bytes[17] ^= std::byte{1}; };
  EXPECT_EQ(learn_after([] {}).code(), Code::kDataLoss);
}

TEST_F(TransferTest, ATransferThatIsCalledOffIsNotTaken) {
  learner_.on_load = [&](std::vector<std::byte>&) { agent_.member_slot(2).transfer.store(0); };
  EXPECT_EQ(learn_after([] {}).code(), Code::kUnavailable);
  EXPECT_EQ(agent_.member_slot(2).replayed.load(), 0U);
}

// A chunk of another state transfer has a CRC that is right for its bytes, and is refused all the
// same.
TEST_F(TransferTest, AChunkOfAnotherTransferDoesNotPass) {
  const auto step = learn_after([&] {
    auto chunk = agent_.arena().snapshot().first(kSnapshotChunk);
    std::ranges::fill(chunk, std::byte{9});
    agent_.arena().snapshot_crcs()[0].store(
        base::crc32c(chunk, proto::snapshot_salt(kMark.transfer - 1)));
  });
  EXPECT_EQ(step.code(), Code::kDataLoss);
}

TEST(KeptResults, OneWrongBitIsFound) {
  auto arena = shmem::Arena::create({.slots = 1,
                                     .shards = 2,
                                     .elements = kSnapshotChunk / 2,
                                     .snapshot_bytes = 8,
                                     .kept_results = 2});
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  const auto bytes = arena->kept_result(9);
  for (std::size_t chunk = 0; chunk < arena->kept_crcs(9).size(); ++chunk) {
    const auto part = bytes.subspan(chunk * kSnapshotChunk, kSnapshotChunk);
    arena->kept_crcs(9)[chunk] = base::crc32c(part, proto::result_salt(9));
  }
  EXPECT_TRUE(result_is_sound(*arena, 9));
  bytes.back() ^= std::byte{128};
  EXPECT_FALSE(result_is_sound(*arena, 9));
  bytes.back() ^= std::byte{128};
  EXPECT_FALSE(result_is_sound(*arena, 11)) << "the same place, another step";
}

}  // namespace
}  // namespace regroup::elastic
