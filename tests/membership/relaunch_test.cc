// Relaunches of jobs that do not use the runtime: with how many, when, and when no more.
#include "membership/relaunch.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

base::TimePoint at(double s) {
  return base::TimePoint{} + milliseconds(static_cast<int>(s * 1000));
}

TEST(Relaunches, LeavesTheFailedSlotOutWhileTheRestSuffices) {
  Relaunches job({}, 2, 4);
  EXPECT_EQ(job.launch(at(0)), 4U);
  const auto verdict = job.on_failure(at(1), 3, 7, "rank 3 exited with 7");
  ASSERT_TRUE(verdict.again);
  EXPECT_EQ(verdict.due, at(1));
  EXPECT_EQ(verdict.members, 3U);
  EXPECT_EQ(verdict.sentence,
            "rank 3 exited with 7: relaunch with 3 members instead of 4 (attempt 2 of 4; with "
            "--max-restarts 0 the first failure ends the job)");
  EXPECT_EQ(job.launch(at(1)), 3U);
  EXPECT_EQ(job.restarts(), 1U);
}

TEST(Relaunches, LaunchesNoMoreThanItMay) {
  Relaunches job({}, 2, 4);
  EXPECT_EQ(job.launch(at(0), 3), 3U);
  EXPECT_EQ(job.launched(), 3U);
  EXPECT_EQ(job.launch(at(1)), 4U);
}

TEST(Relaunches, WaitsForTheBackOffWhereTheRestIsTooSmall) {
  Relaunches job({}, 2, 2);
  EXPECT_EQ(job.launch(at(0)), 2U);
  auto verdict = job.on_failure(at(1), 0, 7, "rank 0");
  EXPECT_EQ(verdict.due, at(1.5));
  EXPECT_EQ(verdict.sentence,
            "rank 0: relaunch with 2 members in 0.5 s (attempt 2 of 4; with "
            "--max-restarts 0 the first failure ends the job)");
  EXPECT_EQ(job.launch(at(1.5)), 2U);
  verdict = job.on_failure(at(2), 0, 7, "rank 0");
  EXPECT_EQ(verdict.due, at(3));  // the same slot: twice as long
  EXPECT_EQ(verdict.sentence, "rank 0: relaunch with 2 members in 1.0 s (attempt 3 of 4)");
  EXPECT_EQ(job.launch(at(3)), 2U);
  verdict = job.on_failure(at(3.5), 1, 7, "rank 1");
  EXPECT_EQ(verdict.due, at(4));  // the other slot: its first
}

TEST(Relaunches, ASlotComesBackAfterItsBackOff) {
  Relaunches job({}, 1, 3);
  EXPECT_EQ(job.launch(at(0)), 3U);
  EXPECT_EQ(job.on_failure(at(1), 2, 1, "rank 2").members, 2U);
  EXPECT_EQ(job.launch(at(1)), 2U);
  EXPECT_EQ(job.on_failure(at(20), 1, 1, "rank 1").members,
            2U);  // slot 2 is free again, slot 1 is not
}

TEST(Relaunches, TheBackOffHasALimit) {
  Relaunches job({.max_restarts = 100, .most_without_progress = 100}, 1, 1);
  base::TimePoint now = at(0);
  base::Duration wait{};
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(job.launch(now), 1U);
    const auto verdict = job.on_failure(now, 0, 1, "rank 0");
    ASSERT_TRUE(verdict.again);
    wait = verdict.due - now;
    now = verdict.due;
  }
  EXPECT_EQ(wait, seconds(60));
}

TEST(Relaunches, EndsWithTheMembersStatusAfterTheLastRestart) {
  Relaunches job({.max_restarts = 1}, 1, 2);
  EXPECT_EQ(job.launch(at(0)), 2U);
  ASSERT_TRUE(job.on_failure(at(1), 0, 9, "rank 0").again);
  EXPECT_EQ(job.launch(at(1)), 1U);
  const auto verdict = job.on_failure(at(2), 0, 7, "rank 0 exited with 7");
  EXPECT_FALSE(verdict.again);
  EXPECT_EQ(verdict.exit_code, 7);
  EXPECT_EQ(verdict.sentence, "rank 0 exited with 7; restarted 1 time already (--max-restarts)");
}

TEST(Relaunches, WithoutRestartsTheFirstFailureEndsTheJob) {
  Relaunches job({.max_restarts = 0}, 1, 2);
  EXPECT_EQ(job.launch(at(0)), 2U);
  const auto verdict = job.on_failure(at(1), 0, 7, "rank 0 exited with 7");
  EXPECT_EQ(verdict.exit_code, 7);
  EXPECT_EQ(verdict.sentence, "rank 0 exited with 7");
}

TEST(Relaunches, StopsWhereNoLaunchMakesProgress) {
  Relaunches job({.max_restarts = 1000}, 1, 8);
  double now = 0;
  for (int i = 0; i < 4; ++i, now += 9) {
    (void)job.launch(at(now));
    ASSERT_TRUE(job.on_failure(at(now + 9), 0, 7, "rank 0").again) << i;
  }
  (void)job.launch(at(now));
  const auto verdict = job.on_failure(at(now + 9), 0, 7, "rank 0");
  EXPECT_FALSE(verdict.again);
  EXPECT_EQ(verdict.exit_code, 93);
}

TEST(Relaunches, ALaunchThatLivedLongCountsAnew) {
  Relaunches job({.max_restarts = 1000}, 1, 8);
  double now = 0;
  for (int i = 0; i < 50; ++i, now += 11) {
    (void)job.launch(at(now));
    ASSERT_TRUE(job.on_failure(at(now + (i % 4 == 0 ? 11 : 1)), 0, 7, "rank 0").again) << i;
  }
}

}  // namespace
}  // namespace regroup::membership
