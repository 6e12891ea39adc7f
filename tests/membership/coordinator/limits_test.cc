// The time limits of a job, on a clock of numbers and without a coordinator.
#include "membership/coordinator/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using StragglerAction = Limits::StragglerAction;

class LimitsTest : public testing::Test {
 protected:
  static base::TimePoint at(int second) { return base::TimePoint(seconds(1000 + second)); }
  MemberInfo& add(MemberState state, int second = 0) {
    MemberInfo& r = members_.add(members_.next_id(), 0, at(second));
    r.state = state;
    limits_.started(at(second));
    return r;
  }
  Limits::Due due(int second) { return limits_.due(at(second), situation_, &members_); }

  Policy policy_{
      .min = 2, .max = 4, .min_members_timeout = seconds(30), .ready_timeout = seconds(60)};
  Limits limits_{policy_};
  Limits::Circumstances situation_{
      .has_world = true, .steady = true, .joined_at = at(0), .least = policy_.min};
  MemberTable members_;
};

TEST_F(LimitsTest, TooFewMembersForTooLongEndTheJob) {
  add(MemberState::kActive);
  EXPECT_FALSE(due(0).end.has_value());
  EXPECT_EQ(limits_.below_min_since(), at(0));
  EXPECT_FALSE(due(29).end.has_value());
  EXPECT_EQ(limits_.next_change(at(29)), at(30));
  EXPECT_EQ(due(30).end, "1 of at least 2 members for 30 s (--min-members-timeout)");
}

TEST_F(LimitsTest, OneMoreMemberEndsTheWait) {
  add(MemberState::kActive);
  (void)due(0);
  add(MemberState::kWarm);
  (void)due(29);
  EXPECT_FALSE(limits_.below_min_since().has_value());
  EXPECT_FALSE(due(60).end.has_value());
}

TEST_F(LimitsTest, ALaunchAndAFinishingJobMayBeSmall) {
  add(MemberState::kStarting);
  situation_.joined_at.reset();
  (void)due(0);
  EXPECT_FALSE(limits_.below_min_since().has_value());
  situation_.joined_at = at(0);
  add(MemberState::kLost).finished = true;
  (void)due(1);
  EXPECT_FALSE(limits_.below_min_since().has_value());
}

TEST_F(LimitsTest, BeforeWorld1StartingMembersCountAndLaterTheyDoNot) {
  for (int i = 0; i < 2; ++i) add(MemberState::kStarting);
  situation_.has_world = false;
  (void)due(0);
  EXPECT_FALSE(limits_.below_min_since().has_value());
  situation_.has_world = true;
  (void)due(1);
  EXPECT_EQ(limits_.below_min_since(), at(1));
}

TEST_F(LimitsTest, AProcessIsKilledOnceAfterItsTime) {
  for (int i = 0; i < 3; ++i) add(MemberState::kActive);
  members_.edit(0)->kill_at = at(5);
  members_.edit(2)->kill_at = at(7);
  EXPECT_THAT(due(4).kill, IsEmpty());
  EXPECT_THAT(due(5).kill, ElementsAre(0));
  EXPECT_THAT(due(6).kill, IsEmpty());
  EXPECT_THAT(due(9).kill, ElementsAre(2));
  EXPECT_EQ(members_.earliest_kill(), base::TimePoint::max());
}

TEST_F(LimitsTest, AMemberHasToBeReadyInTimeAfterItsStart) {
  for (int i = 0; i < 2; ++i) add(MemberState::kActive);
  add(MemberState::kStarting, 10);
  add(MemberState::kStarting, 20);
  EXPECT_THAT(due(69).unready, IsEmpty());
  EXPECT_THAT(due(70).unready, ElementsAre(2));
  members_.edit(2)->state = MemberState::kGone;
  EXPECT_THAT(due(79).unready, IsEmpty());
  EXPECT_THAT(due(80).unready, ElementsAre(3));
}

TEST_F(LimitsTest, MembersOfALaunchHaveTheirTimeFromTheFirstJoinOn) {
  for (int i = 0; i < 2; ++i) add(MemberState::kStarting);
  situation_.has_world = false;
  situation_.joined_at.reset();
  EXPECT_THAT(due(100).unready, IsEmpty()) << "only a join shows that the program uses Regroup";
  situation_.joined_at = at(100);
  EXPECT_THAT(due(159).unready, IsEmpty());
  EXPECT_THAT(due(160).unready, ElementsAre(0, 1));
}

TEST_F(LimitsTest, AWorldOfFixedSizeEndsWithoutOneOfItsRanks) {
  policy_.fixed = true;
  Limits limits(policy_);
  for (int i = 0; i < 3; ++i) add(MemberState::kWarm);
  add(MemberState::kStarting);
  limits.started(at(0));
  members_.edit(0)->kill_at = at(3);
  const auto due = limits.due(at(60), situation_, &members_);
  EXPECT_EQ(due.end, "3 of 4 ranks have called join(), and within 60 s rank 3 did not");
  EXPECT_THAT(due.unready, IsEmpty());
  EXPECT_THAT(due.kill, ElementsAre(0)) << "killed before the job ends";
}

TEST_F(LimitsTest, MembersThatDoNotKnowOfAFinishAreAskedAndThenRegrouped) {
  add(MemberState::kActive).finished = true;
  add(MemberState::kActive);
  EXPECT_EQ(due(0).straggling, StragglerAction::kQuery);
  EXPECT_EQ(limits_.due(at(0) + milliseconds(900), situation_, &members_).straggling,
            StragglerAction::kNone);
  EXPECT_EQ(due(1).straggling, StragglerAction::kRegroup);
  situation_.steady = false;
  EXPECT_EQ(due(2).straggling, StragglerAction::kNone);
  situation_.steady = true;
  EXPECT_EQ(due(3).straggling, StragglerAction::kQuery) << "in the next World from the beginning";
  limits_.enter_world();
  EXPECT_EQ(due(4).straggling, StragglerAction::kQuery);
  members_.edit(1)->finished = true;
  EXPECT_EQ(due(9).straggling, StragglerAction::kNone);
}

TEST_F(LimitsTest, MembersAreAskedEachSecondAndOftenerWhileOneWaitsToLeave) {
  for (int i = 0; i < 2; ++i) add(MemberState::kActive);
  EXPECT_TRUE(due(0).query);
  limits_.queried(at(0), false);
  EXPECT_FALSE(due(0).query);
  EXPECT_EQ(limits_.next_change(at(0)), at(1));
  EXPECT_TRUE(due(1).query);
  limits_.queried(at(1), true);
  EXPECT_EQ(limits_.next_change(at(1)), at(1) + milliseconds(100));
  limits_.query_at(at(1));
  EXPECT_TRUE(due(1).query) << "a user looks";
  situation_.has_world = false;
  EXPECT_FALSE(due(9).query) << "no member takes part in anything";
}

}  // namespace
}  // namespace regroup::membership
