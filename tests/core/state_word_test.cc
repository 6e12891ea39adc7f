// The state word on real atomics: packing, each transition, each refusal. All interleavings: tests/model/.
#include "core/state_word.h"

#include <gtest/gtest.h>

#include "core/doorbell.h"

namespace regroup::core {
namespace {

constexpr Position kStep = Position::of(4);
constexpr Position kNext = Position::of(5);

class StateWordTest : public testing::Test {
 protected:
  void set(Phase phase, bool revoked, Generation g, Position p) {
    word_ = StateWord{phase, revoked, g, p}.pack();
  }
  void expect(Phase phase, bool revoked, Generation g, Position p) {
    EXPECT_EQ(load_state<RealPolicy>(word_), (StateWord{phase, revoked, g, p}));
  }
  void revoke_generation(Generation g) { revoke<RealPolicy>(word_, revoked_up_to_, g); }

  std::atomic<std::uint64_t> word_{0};
  std::atomic<std::uint32_t> revoked_up_to_{0};
};

TEST_F(StateWordTest, PacksEveryFieldAtItsLimits) {
  for (const Phase phase : {Phase::kNone, Phase::kOpen, Phase::kCommitted, Phase::kClosed}) {
    for (const bool revoked : {false, true}) {
      for (const Generation g : {0U, 1U, kMaxGeneration}) {
        for (const Position p : {Position{}, kStep, Position::of(kMaxStep, 255)}) {
          const StateWord word{phase, revoked, g, p};
          EXPECT_EQ(StateWord::unpack(word.pack()), word);
        }
      }
    }
  }
  EXPECT_EQ(StateWord().pack(), 0U);  // a new slot is all zero
  EXPECT_EQ((StateWord{Phase::kCommitted, true, 1, Position{2}}).pack(), 0xa000010000000002ULL);
}

TEST_F(StateWordTest, CommittedUpTo) {
  EXPECT_EQ(committed_up_to({}, 1), Position{});
  EXPECT_EQ(committed_up_to({Phase::kCommitted, false, 2, kStep}, 1), kStep);
  EXPECT_EQ(committed_up_to({Phase::kCommitted, true, 2, kStep}, 9), kStep);
  for (const Phase phase : {Phase::kOpen, Phase::kClosed}) {
    EXPECT_EQ(committed_up_to({phase, false, 2, kStep}, 1), Position::of(3, 255));
    EXPECT_EQ(committed_up_to({phase, false, 2, Position::of(4, 2)}, 4), Position::of(4, 1));
    // A newcomer that opens its first step has not seen the regions before it.
    EXPECT_EQ(committed_up_to({phase, false, 2, kStep}, 4), Position{});
    EXPECT_EQ(committed_up_to({phase, false, 2, Position{}}, 4), Position{});
  }
}

TEST_F(StateWordTest, OpenNeedsExactlyCommittedOfThisGenerationAndPosition) {
  set(Phase::kCommitted, false, 2, kStep);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 3, kStep, kNext));
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kNext, kNext));
  EXPECT_TRUE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
  expect(Phase::kOpen, false, 2, kNext);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
  set(Phase::kCommitted, true, 2, kStep);
  EXPECT_FALSE(open_transaction<RealPolicy>(word_, 2, kStep, kNext));
}

TEST_F(StateWordTest, CommitNeedsExactlyOpenOfThisGenerationAndPosition) {
  set(Phase::kOpen, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 1, kStep));
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kNext));
  EXPECT_TRUE(commit_transaction<RealPolicy>(word_, 2, kStep));
  expect(Phase::kCommitted, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kStep));
  set(Phase::kClosed, false, 2, kStep);
  EXPECT_FALSE(commit_transaction<RealPolicy>(word_, 2, kStep));
}

TEST_F(StateWordTest, RevokeOfEachPhase) {
  revoke_generation(2);
  expect(Phase::kNone, false, 0, {});  // a newcomer: only `revoked up to` stops it
  EXPECT_EQ(revoked_up_to_, 2U);
  set(Phase::kOpen, false, 2, kStep);
  revoke_generation(2);
  expect(Phase::kClosed, false, 2, kStep);
  revoke_generation(5);  // closed up to the new generation, so that a join of 3..5 fails
  expect(Phase::kClosed, false, 5, kStep);
  set(Phase::kCommitted, false, 2, kStep);
  revoke_generation(2);
  expect(Phase::kCommitted, true, 2, kStep);
  revoke_generation(4);
  expect(Phase::kCommitted, true, 4, kStep);
  EXPECT_EQ(revoked_up_to_, 5U);  // it only grows
}

TEST_F(StateWordTest, RevokeLeavesANewerGenerationAlone) {
  set(Phase::kOpen, false, 3, kStep);
  revoke_generation(2);
  expect(Phase::kOpen, false, 3, kStep);
  EXPECT_EQ(revoked_up_to_, 2U);
  set(Phase::kClosed, false, 2, kStep);
  revoke_generation(2);  // twice is once
  revoke_generation(2);
  expect(Phase::kClosed, false, 2, kStep);
}

TEST_F(StateWordTest, AcceptKeepsTheOldGeneration) {
  set(Phase::kClosed, false, 2, kStep);
  const StateWord closed = load_state<RealPolicy>(word_);
  EXPECT_TRUE(accept_commit<RealPolicy>(word_, closed));
  expect(Phase::kCommitted, true, 2, kStep);
  EXPECT_FALSE(accept_commit<RealPolicy>(word_, closed));
  set(Phase::kClosed, false, 3, kStep);  // revoked again since it was read
  EXPECT_FALSE(accept_commit<RealPolicy>(word_, closed));
}

TEST_F(StateWordTest, JoinGoesOnWithAClosedPositionAndKeepsACommittedOne) {
  set(Phase::kClosed, false, 2, kStep);
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  expect(Phase::kOpen, false, 3, kStep);
  set(Phase::kCommitted, true, 2, kStep);
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  expect(Phase::kCommitted, false, 3, kStep);
}

TEST_F(StateWordTest, JoinOfARevokedGenerationIsRefused) {
  set(Phase::kClosed, false, 2, kStep);
  const StateWord read = load_state<RealPolicy>(word_);
  revoke_generation(3);
  EXPECT_FALSE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 3));
  EXPECT_FALSE(join_generation<RealPolicy>(word_, revoked_up_to_, read, 4));  // read before the revoke
  EXPECT_TRUE(join_generation<RealPolicy>(word_, revoked_up_to_, load_state<RealPolicy>(word_), 4));
}

}  // namespace
}  // namespace regroup::core
