// The state word on real atomics: packing, each transition, each refusal. All interleavings:
// tests/model/.
#include "shmem/state_word.h"

#include <gtest/gtest.h>

#include "shmem/doorbell.h"

namespace regroup::shmem {
namespace {

constexpr proto::Position kStep = proto::Position::of(4);
constexpr proto::Position kNext = proto::Position::of(5);

class StateWordTest : public testing::Test {
 protected:
  void set(proto::Phase phase, bool revoked, proto::Generation g, proto::Position p) {
    word_ = proto::StateWord{phase, revoked, g, p}.pack();
  }
  void expect(proto::Phase phase, bool revoked, proto::Generation g, proto::Position p) {
    EXPECT_EQ(load_state<RealPolicy>(word_), (proto::StateWord{phase, revoked, g, p}));
  }
  void revoke_generation(proto::Generation g) { revoke<RealPolicy>(word_, revoked_up_to_, g); }

  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> revoked_up_to_{0};
};

TEST_F(StateWordTest, PacksEveryFieldAtItsLimits) {
  for (const proto::Phase phase : {proto::Phase::kNone, proto::Phase::kOpen,
                                   proto::Phase::kCommitted, proto::Phase::kClosed}) {
    for (const bool revoked : {false, true}) {
      for (const proto::Generation g : {0U, 1U, proto::kMaxGeneration}) {
        for (const proto::Position p :
             {proto::Position{}, kStep, proto::Position::of(proto::kMaxStep, 255)}) {
          const proto::StateWord word{phase, revoked, g, p};
          EXPECT_EQ(proto::StateWord::unpack(word.pack()), word);
        }
      }
    }
  }
  EXPECT_EQ(proto::StateWord().pack(), 0U);  // a new slot is all zero
  EXPECT_EQ((proto::StateWord{proto::Phase::kCommitted, true, 1, proto::Position{2}}).pack(),
            0xa000010000000002ULL);
}

TEST_F(StateWordTest, CommittedUpTo) {
  EXPECT_EQ(proto::committed_up_to({}, 1), proto::Position{});
  EXPECT_EQ(proto::committed_up_to({proto::Phase::kCommitted, false, 2, kStep}, 1), kStep);
  EXPECT_EQ(proto::committed_up_to({proto::Phase::kCommitted, true, 2, kStep}, 9), kStep);
  for (const proto::Phase phase : {proto::Phase::kOpen, proto::Phase::kClosed}) {
    EXPECT_EQ(proto::committed_up_to({phase, false, 2, kStep}, 1), proto::Position::of(3, 255));
    EXPECT_EQ(proto::committed_up_to({phase, false, 2, proto::Position::of(4, 2)}, 4),
              proto::Position::of(4, 1));
    // A newcomer that opens its first step has not seen the sections before it.
    EXPECT_EQ(proto::committed_up_to({phase, false, 2, kStep}, 4), proto::Position{});
    EXPECT_EQ(proto::committed_up_to({phase, false, 2, proto::Position{}}, 4), proto::Position{});
  }
}

TEST_F(StateWordTest, OpenNeedsExactlyCommittedOfThisGenerationAndPosition) {
  set(proto::Phase::kCommitted, false, 2, kStep);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 3, kStep, kNext));
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kNext, kNext));
  EXPECT_TRUE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
  expect(proto::Phase::kOpen, false, 2, kNext);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
  set(proto::Phase::kCommitted, true, 2, kStep);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
}

TEST_F(StateWordTest, CommitNeedsExactlyOpenOfThisGenerationAndPosition) {
  set(proto::Phase::kOpen, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 1, kStep));
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kNext));
  EXPECT_TRUE(commit_transaction<RealPolicy>(word_, 2, kStep));
  expect(proto::Phase::kCommitted, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kStep));
  set(proto::Phase::kClosed, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kStep));
}

TEST_F(StateWordTest, RevokeOfEachPhase) {
  revoke_generation(2);
  expect(proto::Phase::kNone, false, 0, {});  // a newcomer: only `revoked up to` stops it
  EXPECT_EQ(revoked_up_to_, 2U);
  set(proto::Phase::kOpen, false, 2, kStep);
  revoke_generation(2);
  expect(proto::Phase::kClosed, false, 2, kStep);
  revoke_generation(5);  // closed up to the new generation, so that a join of 3..5 fails
  expect(proto::Phase::kClosed, false, 5, kStep);
  set(proto::Phase::kCommitted, false, 2, kStep);
  revoke_generation(2);
  expect(proto::Phase::kCommitted, true, 2, kStep);
  revoke_generation(4);
  expect(proto::Phase::kCommitted, true, 4, kStep);
  EXPECT_EQ(revoked_up_to_, 5U);  // it only grows
}

TEST_F(StateWordTest, RevokeLeavesANewerGenerationAlone) {
  set(proto::Phase::kOpen, false, 3, kStep);
  revoke_generation(2);
  expect(proto::Phase::kOpen, false, 3, kStep);
  EXPECT_EQ(revoked_up_to_, 2U);
  set(proto::Phase::kClosed, false, 2, kStep);
  revoke_generation(2);  // twice is once
  revoke_generation(2);
  expect(proto::Phase::kClosed, false, 2, kStep);
}

TEST_F(StateWordTest, AcceptKeepsTheOldGeneration) {
  set(proto::Phase::kClosed, false, 2, kStep);
  const proto::StateWord closed = load_state<RealPolicy>(word_);
  EXPECT_TRUE(accept_commit<RealPolicy>(word_, closed));
  expect(proto::Phase::kCommitted, true, 2, kStep);
  EXPECT_FALSE(accept_commit<RealPolicy>(word_, closed));
  set(proto::Phase::kClosed, false, 3, kStep);  // revoked again since it was read
  EXPECT_FALSE(accept_commit<RealPolicy>(word_, closed));
}

TEST_F(StateWordTest, JoinGoesOnWithAClosedPositionAndKeepsACommittedOne) {
  set(proto::Phase::kClosed, false, 2, kStep);
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  expect(proto::Phase::kOpen, false, 3, kStep);
  set(proto::Phase::kCommitted, true, 2, kStep);
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  expect(proto::Phase::kCommitted, false, 3, kStep);
}

TEST_F(StateWordTest, JoinOfARevokedGenerationIsRefused) {
  set(proto::Phase::kClosed, false, 2, kStep);
  const proto::StateWord read = load_state<RealPolicy>(word_);
  revoke_generation(3);
  EXPECT_FALSE(
      join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  // Read before the revoke.
  EXPECT_FALSE(join_generation<RealPolicy>(word_, revoked_up_to_, read, 4));
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 4));
}

}  // namespace
}  // namespace regroup::shmem
