// When a member that failed is replaced, when its slot is given up, and when the job ends: which
// failures are the same, and what counts as progress.
#include "membership/coordinator/restart_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace regroup::membership {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using What = RestartBudget::What;
using Slots = std::set<std::uint32_t>;

const proto::Failure kLog{
    .kind = "FileNotFoundError", .place = "train.py:6", .message = "FileNotFoundError: no 'log'"};
const proto::Failure kOther{
    .kind = "ValueError", .place = "train.py:9", .message = "ValueError: 7"};

class Budget : public testing::Test {
 protected:
  // The next member of `slot` ends after `lived`, in which it and the job took `steps` steps.
  RestartBudget::Verdict end(std::uint32_t slot, const proto::Failure& failure, proto::Step steps,
                             base::Duration lived, const Slots& others = {0, 1, 2, 3}) {
    return end({.slot = slot,
                .failure = failure,
                .cause = "exited with status 1",
                .lived = lived,
                .steps = steps},
               others);
  }
  RestartBudget::Verdict by_status(std::uint32_t slot, const char* cause, proto::Step steps,
                                   const Slots& others = {0, 1, 2, 3}) {
    return end({.slot = slot, .cause = cause, .lived = seconds(1), .steps = steps}, others);
  }
  RestartBudget::Verdict killed(std::uint32_t slot, proto::Step steps) {
    return end({.slot = slot, .cause = "killed by signal 9", .outside = true, .steps = steps},
               {0, 1, 2, 3});
  }
  RestartBudget::Verdict end(Ending ending, Slots others) {
    now_ += ending.lived + seconds(20);
    at_ += ending.steps;
    ending.member = next_++;
    ending.ready = ready_;
    ending.at = at_;
    others.erase(ending.slot);
    return budget_.on_ending(now_, ending, others);
  }

  void next_launch() {
    FailureStreak row = passed_on(budget_.row());
    budget_ = RestartBudget({.max_restarts = 3});
    budget_.restore(std::move(row));
  }

  RestartBudget budget_{{.max_restarts = 3}};
  base::TimePoint now_{seconds(1000)};
  proto::MemberId next_ = 4;
  proto::Step at_ = 0;
  bool ready_ = true;
};

TEST_F(Budget, TheSameExceptionInOneSlotGivesUpThatSlotOnly) {
  EXPECT_EQ(end(2, kLog, 50, seconds(1)).what, What::kRestart);
  EXPECT_EQ(end(2, kLog, 50, seconds(1)).what, What::kRestart);
  const auto third = end(2, kLog, 50, seconds(1));
  EXPECT_EQ(third.what, What::kDisableSlot);
  EXPECT_EQ(third.why,
            "slot 2: 3 members in a row failed in the same way: FileNotFoundError: no 'log' at "
            "train.py:6");
  EXPECT_EQ(budget_.next(now_ + hours(1), 4, {true, true, false, true}), std::nullopt);
  EXPECT_FALSE(budget_.any_left(4, {true, true, false, true}));
  EXPECT_EQ(budget_.next(now_ + hours(1), 4, {true, false, false, true}), 1U);
  budget_.reset();
  EXPECT_EQ(budget_.next(now_, 4, {true, true, false, true}), 2U);
}

TEST_F(Budget, AnExceptionThatMeetsTheMembersOfAllSlotsEndsTheJob) {
  EXPECT_EQ(end(0, kLog, 50, seconds(1), {0, 1}).what, What::kRestart);
  EXPECT_EQ(end(1, kLog, 50, seconds(1), {0, 1}).what, What::kRestart);
  const auto third = end(0, kLog, 50, seconds(1), {0, 1});
  EXPECT_EQ(third.what, What::kEndJob);
  EXPECT_EQ(third.why,
            "3 members in a row (4, 5, 6) failed in the same way: FileNotFoundError: no 'log' at "
            "train.py:6");
}

TEST_F(Budget, ARowOfExceptionsGoesOnInTheNextLaunch) {
  for (int launch = 1; launch < 3; ++launch) {
    EXPECT_EQ(end(0, kLog, 50, seconds(1), {0}).what, What::kRestart) << launch;
    next_launch();
  }
  const auto third = end(0, kLog, 50, seconds(1), {0});
  EXPECT_EQ(third.what, What::kEndJob);
  EXPECT_EQ(third.why,
            "3 members in a row, in 3 launches of the job, failed in the same way: "
            "FileNotFoundError: no 'log' at train.py:6");
}

TEST_F(Budget, ALaunchThatOneEndsFromOutsideIsNoneOfTheRow) {
  EXPECT_EQ(end(0, kLog, 50, seconds(1), {0, 1}).what, What::kRestart);
  EXPECT_EQ(end(1, kLog, 50, seconds(1), {0, 1}).what, What::kRestart);
  next_launch();
  EXPECT_EQ(killed(0, 50).what, What::kRestart);
  next_launch();
  EXPECT_THAT(end(0, kLog, 50, seconds(1), {0, 1}).why,
              HasSubstr("3 members in a row, in 2 launches of the job, failed"));
}

TEST_F(Budget, TheNextLaunchBeginsAnewAfterAnotherExceptionAStatusOrAMinuteOfTraining) {
  for (const proto::Failure& failure : {kLog, kOther, kLog, kOther}) {
    EXPECT_EQ(end(0, failure, 50, seconds(1), {0}).what, What::kRestart);
    next_launch();
  }
  for (int launch = 0; launch < 4; ++launch) {
    EXPECT_EQ(by_status(0, "exited with status 3", 0, {0}).what, What::kRestart);
    next_launch();
  }
  for (int launch = 0; launch < 4; ++launch) {
    EXPECT_EQ(end(0, kLog, 50, hours(1), {0}).what, What::kRestart);
    next_launch();
  }
}

// The next launch goes on from an older one.
TEST_F(Budget, ACheckpointThatCannotBeReadSaysNothingOfTheNextLaunch) {
  const proto::Failure unreadable{.kind = proto::kUnreadableKind, .message = "step-8: bad CRC"};
  EXPECT_EQ(end(0, unreadable, 0, seconds(1), {0}).what, What::kRestart);
  next_launch();
  EXPECT_EQ(budget_.row(), FailureStreak());
}

TEST_F(Budget, OneThatSomeMembersNeverMeetDoesNot) {
  for (std::uint32_t slot : {2U, 3U, 2U, 3U})
    EXPECT_EQ(end(slot, kLog, 50, seconds(1)).what, What::kRestart);
  EXPECT_EQ(end(2, kLog, 50, seconds(1)).what, What::kDisableSlot);
  EXPECT_EQ(end(3, kLog, 50, seconds(1)).what, What::kDisableSlot);
}

TEST_F(Budget, AmongManySlotsEightAreEnough) {
  Slots hundred;
  for (std::uint32_t slot = 0; slot < 100; ++slot) hundred.insert(slot);
  for (std::uint32_t slot = 0; slot < 7; ++slot)
    EXPECT_EQ(end(slot, kLog, 50, seconds(1), hundred).what, What::kRestart) << slot;
  EXPECT_EQ(end(7, kLog, 50, seconds(1), hundred).what, What::kEndJob);
}

TEST_F(Budget, AnotherExceptionOrAnotherPlaceBeginsAnew) {
  proto::Failure elsewhere = kLog;
  elsewhere.place = "train.py:7";
  for (const proto::Failure& failure : {kLog, kLog, kOther})
    EXPECT_EQ(end(0, failure, 50, seconds(1)).what, What::kRestart);
  EXPECT_EQ(end(1, kLog, 50, seconds(1)).what, What::kRestart);
  EXPECT_EQ(end(2, elsewhere, 50, seconds(1)).what, What::kRestart);
  EXPECT_EQ(end(1, kLog, 50, seconds(1), {1}).what, What::kRestart);  // the row is one long again
}

TEST_F(Budget, WithoutAnExceptionTheSameStatusCountsWhereTheJobMadeNoStep) {
  EXPECT_EQ(by_status(0, "killed by signal 11", 0, {0, 1}).what, What::kRestart);
  EXPECT_EQ(by_status(1, "killed by signal 11", 0, {0, 1}).what, What::kRestart);
  EXPECT_EQ(by_status(0, "killed by signal 11", 0, {0, 1}).what, What::kEndJob);
  budget_.reset();
  // Where it made some, each slot has its budget.
  for (std::uint32_t slot : {0U, 1U, 0U, 1U, 0U, 1U})
    EXPECT_EQ(by_status(slot, "exited with status 3", 5, {0, 1}).what, What::kRestart) << slot;
  EXPECT_EQ(by_status(0, "exited with status 3", 5, {0, 1}).what, What::kDisableSlot);
}

TEST_F(Budget, AMemberThatIsEndedFromOutsideAgainAndAgainIsPutOffLongerEachTimeAndNeverGivenUp) {
  const auto kill = [&](base::Duration lived) {
    now_ += lived;
    const Ending ending{.slot = 1,
                        .cause = "killed by signal 9",
                        .outside = true,
                        .ready = true,
                        .lived = lived,
                        .steps = 3};
    EXPECT_EQ(budget_.on_ending(now_, ending, {0}).what, What::kRestart);
    return budget_.next_change(now_).value_or(now_) - now_;
  };
  base::Duration before{};
  for (int i = 0; i < 6; ++i) {
    const base::Duration now = kill(milliseconds(100));
    EXPECT_GT(now, std::exchange(before, now));
  }
  for (int i = 0; i < 20; ++i) (void)kill(milliseconds(100));
  EXPECT_EQ(kill(milliseconds(100)), seconds(10));
  // One that has lived for as long as the longest delay is replaced at once.
  EXPECT_LE(kill(seconds(10)), base::Duration());
  EXPECT_EQ(kill(milliseconds(100)), milliseconds(100));
}

TEST_F(Budget, MaxRestartsBoundsFailuresThatDiffer) {
  const proto::Failure failures[] = {kLog, kOther, kLog};
  for (const proto::Failure& failure : failures)
    EXPECT_EQ(end(1, failure, 5, seconds(1)).what, What::kRestart);
  const auto last = end(1, kOther, 5, seconds(1));
  EXPECT_EQ(last.what, What::kDisableSlot);
  EXPECT_THAT(last.why, HasSubstr("replaced 3 times without progress (--max-restarts)"));
}

TEST_F(Budget, NoRestartsAtAllAreOneFailure) {
  budget_ = RestartBudget({.max_restarts = 0});
  EXPECT_EQ(end(1, kLog, 50, seconds(1)).what, What::kDisableSlot);
}

TEST_F(Budget, ThreeThatEndBeforeTheyAreReadyAreEnough) {
  budget_ = RestartBudget({.max_restarts = 100});
  ready_ = false;
  EXPECT_EQ(by_status(1, "exited with status 1", 0).what, What::kRestart);
  EXPECT_EQ(by_status(1, "exited with status 2", 0).what, What::kRestart);
  const auto third = by_status(1, "exited with status 1", 0);
  EXPECT_EQ(third.what, What::kDisableSlot);
  EXPECT_THAT(third.why, HasSubstr("3 members in a row ended before they were ready"));
}

TEST_F(Budget, AMinuteOfTrainingGivesTheBudgetBack) {
  for (int day = 0; day < 20; ++day) {
    EXPECT_EQ(end(1, kLog, 1000, hours(3), {1}).what, What::kRestart);
    EXPECT_EQ(end(1, kLog, 50, seconds(1), {1}).what, What::kRestart);
  }
  // A minute of waiting, or of one long step, is no training.
  EXPECT_EQ(end(2, kLog, 0, hours(1)).what, What::kRestart);
  EXPECT_EQ(end(2, kLog, 9, hours(1)).what, What::kRestart);
  EXPECT_EQ(end(2, kLog, 9, hours(1)).what, What::kDisableSlot);
}

TEST_F(Budget, KillsOfMembersThatTrainAreNoFailures) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(killed(1, 1).what, What::kRestart);
  // That of one that never takes a step is: as of one that has too little memory.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(killed(1, 0).what, What::kRestart);
  EXPECT_EQ(killed(1, 0).what, What::kDisableSlot);
}

TEST_F(Budget, LearnersAreReplacedHoweverOftenTheyAreKilled) {
  for (int i = 0; i < 10; ++i) {
    const auto verdict =
        end({.slot = 1, .cause = "killed by signal 9", .outside = true, .learning = true}, {0, 2});
    EXPECT_EQ(verdict.what, What::kRestart);
    EXPECT_FALSE(budget_.next(now_, 3, {true, false, true})) << "it is put off";
  }
  EXPECT_EQ(end({.slot = 1, .cause = "exit status 1", .learning = true}, {0, 2}).what,
            What::kDisableSlot);
}

TEST_F(Budget, KillsDoNotEndTheJob) {
  for (std::uint32_t slot : {0U, 1U, 0U, 1U, 0U, 1U}) {
    const auto verdict =
        end({.slot = slot, .cause = "killed by signal 9", .outside = true}, {0, 1});
    EXPECT_EQ(verdict.what, What::kRestart);
  }
}

TEST_F(Budget, BacksOffPerSlot) {
  const std::vector<bool> used{true, false, false};
  budget_.put_off(now_, 1, /*survivors_go_on=*/false);
  EXPECT_EQ(budget_.next(now_, 3, used), 2U);
  EXPECT_EQ(budget_.next(now_ + milliseconds(100), 3, used), 1U);
  base::Duration expected = milliseconds(200);
  budget_ = RestartBudget({.max_restarts = 100});
  for (int i = 0; i < 9; ++i) {
    (void)end(1, i % 2 == 0 ? kLog : kOther, 5, seconds(0));
    budget_.put_off(now_, 1, false);
    EXPECT_EQ(budget_.next_change(now_), now_ + std::min<base::Duration>(expected, seconds(10)));
    expected *= 2;
  }
  EXPECT_EQ(budget_.next(now_, 2, {true, false}), std::nullopt);
  EXPECT_TRUE(budget_.any_left(2, {true, false}));
}

TEST_F(Budget, SurvivorsGoFirst) {
  budget_.put_off(now_, 0, /*survivors_go_on=*/true);
  EXPECT_EQ(budget_.next_change(now_), now_ + milliseconds(300));
}

TEST(EndedFromOutside, ByTheSignalsThatOthersSend) {
  for (int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP})
    EXPECT_TRUE(ended_from_outside(128 + signal)) << signal;
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    EXPECT_FALSE(ended_from_outside(128 + signal)) << signal;
  for (int status : {0, 1, 3, 127, 128, 255}) EXPECT_FALSE(ended_from_outside(status)) << status;
}

}  // namespace
}  // namespace regroup::membership
