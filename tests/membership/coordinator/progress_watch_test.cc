// Who is said to stand still, and when: by what members report of a World of four on two nodes.
#include "membership/coordinator/progress_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace regroup::membership {
namespace {

using namespace std::chrono_literals;
using proto::Phase;
using proto::Position;

constexpr proto::Generation kGeneration = 3;
constexpr base::Duration kLeast = 60s;

class ProgressWatchTest : public testing::Test {
 protected:
  ProgressWatchTest() {
    world_.generation = kGeneration;
    world_.shards = 8;
    for (proto::MemberId id = 0; id < 4; ++id) {
      world_.members.push_back({id, {id / 2, static_cast<proto::SlotIndex>(id % 2)}});
      members_.insert(id);
    }
    watch_.begin(at_);
  }
  // Has sealed `leaves` of its two (of rank id) in an open step.
  void see(proto::MemberId id, Phase phase, Position position, std::uint32_t leaves = 0,
           proto::Generation g = kGeneration) {
    proto::SlotReport slot{.member = id, .state = {phase, false, g, position}};
    const bool applied = phase == Phase::kCommitted || position.section() != 0;
    slot.step = position.step() - (applied ? 0 : 1);
    if (leaves > 0) slot.seals.push_back({position.step(), {2 * id, 2 * id + leaves}});
    slots_[id] = slot;
    watch_.update(at_, slot);
  }
  // Each second a step, of all; the last is `steps`.
  void train(proto::Step steps, base::Duration each = 1s) {
    for (proto::Step step = 1; step <= steps; ++step, at_ += each) {
      for (const proto::MemberId id : members_) see(id, Phase::kCommitted, Position::of(step));
    }
    at_ -= each;
  }
  // Nobody gets on: the seconds until somebody is said to stand still, or until nothing was said.
  [[nodiscard]] std::optional<ProgressWatch::Stall> wait(base::Duration most = 1000s) {
    const base::Duration begin = at_;
    for (; at_ <= begin + most; at_ += 1s) {
      if (!watch_.is_quiet(at_, kLeast)) continue;
      for (const auto& [id, slot] : slots_) watch_.update(at_, slot);  // asked for each second
      auto found = watch_.find_stall(at_, world_,
                                     [this](proto::MemberId id) { return members_.contains(id); });
      if (found) waited_ = at_ - begin;
      if (found) return found;
    }
    return std::nullopt;
  }
  proto::World world_;
  std::set<proto::MemberId> members_;                   // that take part
  std::map<proto::MemberId, proto::SlotReport> slots_;  // as last reported
  ProgressWatch watch_;
  base::Duration at_ = 500s, waited_{};
};

using Ids = std::vector<proto::MemberId>;

TEST_F(ProgressWatchTest, NamesWhoComputesWhileOthersWait) {
  train(20);
  for (const proto::MemberId id : {0, 1, 3}) see(id, Phase::kOpen, Position::of(21), 2);
  see(2, Phase::kOpen, Position::of(21), 1);  // one of its two leaves
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{2});
  EXPECT_EQ(found->why, "keeps 3 others waiting for 60 s (a step takes 1 s): it computes step 21");
  EXPECT_EQ(waited_, 60s);
  EXPECT_FALSE(wait());  // it was said
}

TEST_F(ProgressWatchTest, NamesThoseThatHaveNotBegunTheStep) {
  train(20);
  for (const proto::MemberId id : {0, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, (Ids{1, 3}));
  EXPECT_EQ(found->why,
            "keep 2 others waiting for 60 s (a step takes 1 s): each has not begun step 21");
}

// In a collective section a member that computes looks like one that waits, and a newcomer takes no
// part.
TEST_F(ProgressWatchTest, SaysNothingWhileAnybodyIsInARegion) {
  train(20);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(20, 1));
  EXPECT_FALSE(wait());
  see(3, Phase::kOpen, Position::of(21), 2);
  EXPECT_FALSE(wait());
}

TEST_F(ProgressWatchTest, NamesWhoHasNotComeToTheGeneration) {
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(8), 2);
  see(3, Phase::kClosed, Position::of(8), 2, kGeneration - 1);
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{3});
  EXPECT_EQ(found->why, "keeps 3 others waiting for 60 s: it has not come to generation 3");
}

TEST_F(ProgressWatchTest, WaitsForTenMedianSteps) {
  train(20, 30s);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(waited_, 300s);
  EXPECT_EQ(found->why,
            "keeps 3 others waiting for 300 s (a step takes 30 s): it has not begun step 21");
}

TEST_F(ProgressWatchTest, TakesTheMedianNotTheMeanOfTheLastSteps) {
  train(20);
  at_ += 900s;  // one long step, for which nobody waited
  for (const proto::MemberId id : members_) see(id, Phase::kCommitted, Position::of(21));
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(22), 2);
  ASSERT_TRUE(wait());
  EXPECT_EQ(waited_, 60s);
}

TEST_F(ProgressWatchTest, SaysThatAllWaitWhereNothingTellsForWhom) {
  train(20);
  for (const proto::MemberId id : members_) see(id, Phase::kOpen, Position::of(21), 2);
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{});
  EXPECT_EQ(found->why,
            "all 4 members have waited for each other in step 21 for 60 s (a step takes 1 s)");
}

TEST_F(ProgressWatchTest, SaysNothingWhereNobodyWaits) {
  EXPECT_FALSE(wait());  // nobody has said anything yet
  train(20);
  EXPECT_FALSE(wait());  // all are at work between two steps
  for (const proto::MemberId id : members_) see(id, Phase::kOpen, Position::of(21), id % 2);
  EXPECT_FALSE(wait());  // all compute: some have sealed nothing, the others a part
}

TEST_F(ProgressWatchTest, SaysNothingOfWhoHasFinishedOrTakesNoPart) {
  train(20);
  slots_[1] = proto::SlotReport{.member = 1, .finished = true};
  for (const proto::MemberId id : {0, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  members_ = {0, 1, 2};  // 3 leaves
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{});
}

TEST_F(ProgressWatchTest, BeginsAnewWhenSomebodyGetsOnAndInEachGeneration) {
  train(20);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  EXPECT_FALSE(wait(58s));
  see(3, Phase::kOpen, Position::of(21), 1);
  EXPECT_FALSE(wait(58s));
  watch_.begin(at_);
  slots_.erase(2);
  EXPECT_FALSE(wait());  // one has not been seen
}

// Of others nobody is killed: they may load their data, copy a state, compile.
TEST_F(ProgressWatchTest, IsSureOfAFewThatHaveTakenStepsAlone) {
  train(20);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  EXPECT_TRUE(wait()->sure);
  see(2, Phase::kOpen, Position::of(21), 1);
  see(1, Phase::kOpen, Position::of(21), 1);
  see(3, Phase::kOpen, Position::of(21), 1);
  EXPECT_FALSE(wait()->sure);  // three of four
}

TEST_F(ProgressWatchTest, IsNotSureOfANewcomer) {
  members_ = {0, 1, 2};
  world_.members.pop_back();
  train(20);
  world_.members.push_back({3, {1, 1}});
  members_.insert(3);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  see(3, Phase::kCommitted, Position::of(20));
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{3});
  EXPECT_FALSE(found->sure);
}

TEST_F(ProgressWatchTest, IsNotSureBeforeItKnowsHowLongStepsAre) {
  train(2);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(3), 2);
  EXPECT_FALSE(wait()->sure);
}

TEST_F(ProgressWatchTest, SaysNothingOfWhoIsNotHeard) {
  train(20);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(21), 2);
  slots_.erase(3);  // its host does not answer
  EXPECT_FALSE(wait());
}

// Of a step that the World begins behind, and of an assertion that would end the coordinator.
TEST_F(ProgressWatchTest, TakesAnOpenStepThatIsCommittedForNone) {
  train(20);
  world_.resume = Position::of(30);
  for (const proto::MemberId id : {0, 1, 2}) see(id, Phase::kOpen, Position::of(31), 2);
  see(3, Phase::kOpen, Position::of(30), 2);
  const auto found = wait();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->members, Ids{3});
}

}  // namespace
}  // namespace regroup::membership
