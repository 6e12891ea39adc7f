// Members that fail again and again: their slots are given up and the others go on, or the job
// ends.
#include <gmock/gmock.h>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

using testing::HasSubstr;

class BudgetTest : public JobTest {
 protected:
  // The first living member in `bad` takes a step in its World, then fails. False: no such
  // one comes any more.
  bool fail_next(SimJob& job, const std::function<bool(const SimMember&)>& bad,
                 const proto::Failure& failure = {}) {
    const auto next = [&] {
      for (auto& [id, m] : job.members) {
        if (!m.alive) continue;
        if (m.world.generation != job.generation() || !m.settled)
          return -1;  // or the state is lost with it
        if (m.applied <= m.world.resume.step()) return -1;
        if (bad(m)) return static_cast<int>(id);
      }
      return -1;
    };
    if (!job.run_until([&] { return job.end || next() >= 0; }) || job.end) return false;
    const auto id = static_cast<proto::MemberId>(next());
    proto::Failure said = failure;
    said.member = id;
    if (said.known()) job.fail(said);
    job.exit(id, 7);
    return true;
  }
  static bool any(const SimMember&) { return true; }
  static bool third(const SimMember& m) { return m.start.member >= 2; }

  const proto::Failure log_{
      .kind = "OSError", .place = "train.py:6", .message = "OSError: no 'log'"};
};

TEST_F(BudgetTest, AMemberThatAlwaysFailsIsGivenUpAndTheOthersFinish) {
  for (const bool says_why : {true, false}) {
    SimOptions o;
    o.steps = 5000;
    SimJob& job = job_.emplace(o);
    ASSERT_TRUE(job.steady(1, 3));
    int failures = 0;
    while (failures < 20 && !job.heard("the slot is disabled") &&
           fail_next(job, third, says_why ? log_ : proto::Failure{})) {
      ++failures;
      (void)job.run_until(
          [&] { return job.heard("the slot is disabled") || job.members.rbegin()->second.alive; });
    }
    EXPECT_EQ(failures, says_why ? 3 : 4);
    EXPECT_TRUE(job.heard(
        says_why
            ? "slot 2: 3 members in a row failed in the same way: OSError: no 'log' at train.py:6"
            : "slot 2: its member was replaced 3 times without progress (--max-restarts)"));
    expect_success(job);
    EXPECT_EQ(job.journal->size(), 2U);
  }
}

TEST_F(BudgetTest, WhatMeetsEveryMemberEndsTheJob) {
  SimOptions o;
  o.policy.min = o.policy.target = 2;
  SimJob& job = start(o);
  int failures = 0;
  while (fail_next(job, any, log_)) ++failures;
  EXPECT_EQ(failures, 3);
  EXPECT_EQ(job.end->exit_code, 7);
  EXPECT_THAT(job.end->reason, HasSubstr("3 members in a row ("));
  EXPECT_THAT(job.end->reason,
              HasSubstr(") failed in the same way: OSError: no 'log' at train.py:6"));
}

TEST_F(BudgetTest, WithoutRestartsTheFirstFailureBelowMinEndsTheJob) {
  SimOptions o;
  o.policy.min = o.policy.target = 2;
  o.policy.relaunch.max_restarts = 0;
  SimJob& job = start(o);
  ASSERT_TRUE(fail_next(job, any));
  const base::TimePoint failed = job.now;
  ASSERT_TRUE(job.run_to_end());
  EXPECT_LT(job.now - failed, std::chrono::seconds(1));  // not after --min-members-timeout
  EXPECT_EQ(job.end->exit_code, 7);
  EXPECT_THAT(job.end->reason, HasSubstr("1 of at least 2 members left"));
}

TEST_F(BudgetTest, MembersThatAreKilledAreReplacedWithoutLimit) {
  SimOptions o;
  o.steps = 1000000;
  SimJob& job = job_.emplace(o);
  ASSERT_TRUE(job.steady(1, 3));
  for (int i = 0; i < 12; ++i) {
    proto::MemberId newest = 0;
    ASSERT_TRUE(job.run_until([&] {
      newest = job.members.rbegin()->first;
      const SimMember& m = job.member(newest);
      return m.alive && m.settled && m.applied > m.world.resume.step();
    })) << i;
    job.kill(newest);
    ASSERT_TRUE(job.run_until([&] { return job.members.rbegin()->first > newest; })) << i;
  }
  EXPECT_FALSE(job.heard("the slot is disabled"));
}

// The signal is the same as of one that somebody else killed.
TEST_F(BudgetTest, AMemberThatAlwaysExceedsItsMemoryIsGivenUp) {
  SimOptions o;
  o.steps = 5000;
  SimJob& job = job_.emplace(o);
  ASSERT_TRUE(job.steady(1, 3));
  for (int i = 0; i < 3; ++i) {
    proto::MemberId newest = 0;
    ASSERT_TRUE(job.run_until([&] {
      newest = job.members.rbegin()->first;
      const SimMember& m = job.member(newest);
      return m.alive && m.settled && m.world.generation == job.generation() &&
             m.applied > m.world.resume.step();
    })) << i;
    job.fail({.member = newest,
              .kind = "memory limit",
              .message = "was killed for exceeding its memory limit of 64 MiB"});
    job.kill(newest);
  }
  ASSERT_TRUE(job.run_until([&] {
    return job.heard(
        "slot 2: 3 members in a row failed in the same way: was killed for exceeding its memory "
        "limit of 64 "
        "MiB");
  }));
  expect_success(job);
}

TEST_F(BudgetTest, AResizeTriesASlotAgainThatWasGivenUp) {
  SimOptions o;
  o.policy.relaunch.max_restarts = 0;
  SimJob& job = start(o);
  ASSERT_TRUE(fail_next(job, third));
  ASSERT_TRUE(job.run_until([&] { return job.heard("slot 2: its member was replaced 0 times"); }));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 4; }));
}

TEST_F(BudgetTest, WhatNoMemberCanDoEndsTheJobWhenItIsSaid) {
  SimJob& job = start();
  proto::Failure final{.member = 1,
                       .kind = "refused checkpoint",
                       .message = "checkpoint c: w is float32 [10]",
                       .final = true};
  job.fail(final);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 1);
  EXPECT_EQ(job.end->reason, "checkpoint c: w is float32 [10]");
  (void)job.run_until([&] { return !job.member(0).alive && !job.member(1).alive; });
  EXPECT_EQ(job.members.size(), 3U);  // nobody took a place
}

TEST_F(BudgetTest, ALaunchOfWhichNobodyIsTakenIsTheLast) {
  SimOptions o;
  o.resumed_fingerprint = "other";
  job_.emplace(o);
  ASSERT_TRUE(job_->run_to_end());
  EXPECT_EQ(job_->end->exit_code, 1);
  EXPECT_THAT(job_->end->reason, HasSubstr("every member was refused: member"));
  EXPECT_EQ(job_->members.size(), 3U);
}

}  // namespace
}  // namespace regroup::membership
