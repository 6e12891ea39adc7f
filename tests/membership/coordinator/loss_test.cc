// What the loss of a member means, by what was known of it before.
#include "membership/coordinator/loss.h"

#include <gtest/gtest.h>

#include "membership/declaration.h"

namespace regroup::membership {
namespace {

using std::chrono::seconds;
using After = FailureVerdict::Then;

constexpr base::TimePoint kLossTime{seconds(1000)};

MemberInfo member_in(MemberState state) {
  MemberInfo r;
  r.id = 3;
  r.state = state;
  return r;
}

TEST(Loss, MeansWhatWasNotKnownBefore) {
  struct Row {
    MemberState state;
    bool joined, reaped;
    Loss meaning;
  };
  constexpr Row kRows[] = {
      {MemberState::kStarting, false, false, Loss::kDetail},
      {MemberState::kStarting, false, true, Loss::kUnready},
      {MemberState::kStarting, true, false, Loss::kUnseenJoin},
      {MemberState::kStarting, true, true, Loss::kUnseenJoin},
      {MemberState::kWarm, true, false, Loss::kDeath},
      {MemberState::kActive, true, true, Loss::kDeath},
      {MemberState::kDraining, true, false, Loss::kDeath},
      {MemberState::kDrained, true, false, Loss::kDeath},
      {MemberState::kLost, true, true, Loss::kDetail},
      {MemberState::kGone, true, true, Loss::kDetail},
  };
  for (const Row& row : kRows) {
    MemberInfo r = member_in(row.state);
    const proto::MemberLost lost{.member = 3, .joined = row.joined, .reaped = row.reaped};
    EXPECT_EQ(meaning_of(r, lost), row.meaning) << state_name(row.state);
    r.status = 1;
    EXPECT_EQ(meaning_of(r, lost), Loss::kNothingNew) << state_name(row.state);
  }
}

TEST(Loss, IsRecordedAndToldOnceTheProcessWasReaped) {
  MemberInfo r = member_in(MemberState::kActive);
  r.step = 7;
  EXPECT_FALSE(record_loss({.member = 3, .joined = true, .step = 6}, &r).has_value());
  EXPECT_FALSE(r.reaped());
  EXPECT_EQ(r.step, 7U);
  r.kill_at = kLossTime;
  EXPECT_EQ(record_loss({.member = 3, .joined = true, .signal = 11, .reaped = true}, &r),
            "member 3: killed by signal 11");
  EXPECT_EQ(r.status, 128 + 11);
  EXPECT_FALSE(r.kill_at.has_value());
  EXPECT_EQ(r.state, MemberState::kActive) << "the caller's";
}

TEST(Loss, AnExpectedEndIsNotTold) {
  MemberInfo dismissed = member_in(MemberState::kGone);
  dismissed.set_ended_by(EndedBy::kCoordinator);
  EXPECT_FALSE(record_loss({.member = 3, .signal = 9, .reaped = true}, &dismissed).has_value());
  MemberInfo finished = member_in(MemberState::kActive);
  EXPECT_FALSE(
      record_loss({.member = 3, .joined = true, .finished = true, .reaped = true}, &finished)
          .has_value());
  EXPECT_TRUE(finished.finished);
  MemberInfo early = member_in(MemberState::kActive);
  EXPECT_EQ(record_loss({.member = 3, .joined = true, .reaped = true}, &early),
            "member 3: exited with status 0 before finish()");
  MemberInfo other_program = member_in(MemberState::kStarting);
  EXPECT_FALSE(record_loss({.member = 3, .reaped = true}, &other_program).has_value());
}

TEST(Loss, AKilledMemberKeepsTheReasonOfItsKill) {
  MemberInfo r = member_in(MemberState::kActive);
  r.cause = "hung";
  r.set_ended_by(EndedBy::kHang);
  (void)record_loss({.member = 3, .joined = true, .signal = 9, .reaped = true}, &r);
  EXPECT_EQ(r.cause, "hung");
  r.status.reset();
  (void)record_loss({.member = 3, .joined = true, .signal = 6, .reaped = true}, &r);
  EXPECT_EQ(r.cause, "killed by signal 6") << "before the kill";
}

TEST(Loss, ADeadMemberStaysInItsWorldAndItsProcessIsKilled) {
  MemberInfo active = member_in(MemberState::kActive);
  EXPECT_TRUE(mark_dead(kLossTime, &active));
  EXPECT_EQ(active.state, MemberState::kLost);
  EXPECT_EQ(active.since, kLossTime);
  EXPECT_EQ(active.kill_at, kLossTime + kExitGrace);
  MemberInfo warm = member_in(MemberState::kWarm);
  warm.status = 1;
  EXPECT_TRUE(mark_dead(kLossTime, &warm));
  EXPECT_EQ(warm.state, MemberState::kGone);
  EXPECT_FALSE(warm.kill_at.has_value()) << "it was reaped";
  MemberInfo finished = member_in(MemberState::kActive);
  finished.finished = true;
  EXPECT_FALSE(mark_dead(kLossTime, &finished));
  EXPECT_FALSE(finished.kill_at.has_value()) << "it may clean up";
  MemberInfo leaving = member_in(MemberState::kDraining);
  EXPECT_FALSE(mark_dead(kLossTime, &leaving));
}

// Members 0 and 1, of which 0 fails.
class FailureOf : public testing::Test {
 protected:
  FailureOf() {
    for (const proto::MemberId id : {0, 1}) {
      MemberInfo& r = members_.add(id, 0, kLossTime);
      r.state = MemberState::kActive;
      r.restart_slot = id;
      r.warm_order = id + 1;
      world_.members.push_back({.id = id});
    }
    MemberInfo& failed = *members_.edit(0);
    failed.state = MemberState::kLost;
    failed.status = 1;
    failed.failure = {.member = 0, .kind = "ValueError", .place = "train.py:6", .message = "bad"};
  }
  FailureVerdict judge() {
    return judge_failure(kLossTime, *members_.find(0), world_, members_, terms_, &budget_);
  }
  FailureVerdict judge_until_the_slot_is_disabled() {
    for (std::uint32_t i = 1; i < RestartBudget::kInARow; ++i)
      EXPECT_EQ(judge().then, After::kReplace);
    return judge();
  }

  MemberTable members_;
  proto::World world_{.generation = 4};
  FailureTerms terms_{.min = 1, .desired = 2};
  RestartBudget budget_{RelaunchPolicy{}};
};

TEST_F(FailureOf, AMemberIsReplacedUntilItsSlotIsDisabled) {
  const auto verdict = judge_until_the_slot_is_disabled();
  EXPECT_EQ(verdict.then, After::kDisableSlot);
  EXPECT_NE(verdict.sentence.find("the slot is disabled, `regroup resize` enables it again"),
            std::string::npos)
      << verdict.sentence;
}

TEST_F(FailureOf, AMemberThatTheJobNeedsEndsItUnlessHostsMayCome) {
  terms_ = {.min = 2, .desired = 1};
  auto verdict = judge_until_the_slot_is_disabled();
  EXPECT_EQ(verdict.then, After::kEndJob);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.left, StateLeft::kWithMembers);
  EXPECT_NE(verdict.sentence.find(": 1 of at least 2 members left"), std::string::npos)
      << verdict.sentence;
  budget_.reset();
  terms_.hosts_may_come = true;
  EXPECT_EQ(judge_until_the_slot_is_disabled().then, After::kDisableSlot);
  budget_.reset();
  world_.generation = 0;
  EXPECT_EQ(judge_until_the_slot_is_disabled().then, After::kEndJob) << "no progress is lost";
}

TEST_F(FailureOf, AnotherProgramThanTheFirstMemberEndsAJobThatCannotBeginWithoutIt) {
  MemberInfo& failed = *members_.edit(0);
  failed.failure = {.member = 0, .kind = kOtherModelKind, .message = "another model"};
  failed.status = 3;
  terms_.min = 2;
  world_.generation = 0;
  const auto verdict = judge();
  EXPECT_EQ(verdict.then, After::kEndJob);
  EXPECT_EQ(verdict.exit_code, 3);
  EXPECT_EQ(verdict.sentence, "another model");
  EXPECT_EQ(budget_.row().length, 0U) << "not counted";
}

TEST_F(FailureOf, NothingIsCountedWhereLostMembersAreNotReplacedOrTheJobIsFinishing) {
  terms_.replaces = false;
  EXPECT_EQ(judge().then, After::kReplace);
  terms_.replaces = true;
  members_.edit(1)->finished = true;
  EXPECT_EQ(judge().then, After::kReplace);
  EXPECT_EQ(budget_.row().length, 0U);
}

TEST_F(FailureOf, TheSameExceptionOfAllSlotsEndsTheJobWithWhatIsLeft) {
  MemberInfo& failed = *members_.edit(0);
  failed.failure = {.member = 0, .kind = proto::kUnreadableKind, .message = "damaged"};
  world_.members.resize(1);
  FailureVerdict verdict;
  for (std::uint32_t i = 0; i < RestartBudget::kInARow; ++i) verdict = judge();
  EXPECT_EQ(verdict.then, After::kEndJob);
  EXPECT_EQ(verdict.left, StateLeft::kNone) << "no member has read it";
}

}  // namespace
}  // namespace regroup::membership
