// How jobs come up, and do not: programs that never join, members that are refused, crash or hang.
#include <gtest/gtest.h>

#include "tests/membership/sim_job.h"

namespace regroup::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StartTest : public testing::Test {
 protected:
  SimJob& make(SimOptions options) {
    job_.emplace(std::move(options));
    return *job_;
  }
  void TearDown() override {
    if (job_) {
      EXPECT_EQ(job_->broken, std::vector<std::string>{});
    }
  }
  // No member joins, however many are started.
  static SimOptions plain(std::uint32_t min, std::uint32_t target) {
    SimOptions o;
    o.policy = {.min = min, .max = target, .target = target, .slots = target, .shards = 4};
    for (proto::MemberId id = 0; id < 50; ++id) o.never_join.insert(id);
    return o;
  }
  bool running(std::size_t launched) {
    return job_->run_until([&] {
      std::size_t alive = 0;
      for (const auto& [id, m] : job_->members) alive += m.alive;
      return job_->members.size() == launched && alive > 0;
    });
  }
  std::optional<SimJob> job_;
};

TEST_F(StartTest, APlainProgramSucceedsWhenAllExitWithZero) {
  SimJob& job = make(plain(1, 3));
  ASSERT_TRUE(running(3));
  job.pass(seconds(3600));  // --min-members-timeout and the ready timeout are nothing to it
  for (proto::MemberId id : {2U, 0U, 1U}) job.exit(id, 0);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 0);
  EXPECT_TRUE(job.worlds.empty());
}

TEST_F(StartTest, BeforeTheFirstJoinADeathIsAnsweredByRelaunchWithTheRest) {
  SimJob& job = make(plain(2, 3));
  ASSERT_TRUE(running(3));
  job.exit(1, 4);
  ASSERT_TRUE(running(5));
  EXPECT_FALSE(job.member(0).alive || job.member(2).alive);
  EXPECT_EQ(job.member(3).start, (proto::Start{3, 0, 2, 1}));
  EXPECT_EQ(job.member(4).start, (proto::Start{4, 1, 2, 1}));
  EXPECT_TRUE(job.heard("relaunch with 2 members instead of 3"));
  const base::TimePoint died = job.now;
  job.exit(4, 5);
  // Below min until the first slot's back-off is over.
  ASSERT_TRUE(job.run_until([&] { return job.members.size() > 5; }));
  EXPECT_GE(job.now - died, milliseconds(400));
}

TEST_F(StartTest, AfterANoticeToTheOnlyHostADeathIsAnsweredByNoLaunch) {
  SimJob& job = make(plain(2, 3));
  ASSERT_TRUE(running(3));
  (void)job.coordinator->handle(job.now, {Sender::Kind::kAgent, 0},
                                {job.incarnation, proto::NodeUp{0, "this one", 0}});
  job.exit(1, 128 + 15);
  ASSERT_TRUE(job.report_death() && job.deliver_to_coordinator());
  EXPECT_FALSE(job.heard("relaunch"));
  EXPECT_TRUE(job.member(0).alive && job.member(2).alive);
}

TEST_F(StartTest, RelaunchesEnd) {
  SimJob& job = make(plain(1, 8));
  std::size_t launched = 0;
  for (std::uint32_t size : {8U, 7U, 6U, 5U}) {
    launched += size;
    ASSERT_TRUE(running(launched)) << size;
    job.kill(static_cast<proto::MemberId>(launched - 1), 11);
  }
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 139);
}

TEST_F(StartTest, RelaunchesWithoutProgressEndTheJob) {
  SimOptions options = plain(1, 8);
  options.policy.relaunch.max_restarts = 100;
  SimJob& job = make(options);
  std::size_t launched = 0;
  for (std::uint32_t size : {8U, 7U, 6U, 5U, 4U}) {
    launched += size;
    ASSERT_TRUE(running(launched)) << size;
    job.exit(static_cast<proto::MemberId>(launched - 1), 3);
  }
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, kNoProgress);
}

TEST_F(StartTest, AnotherModelIsRefusedAndTheOthersGoOn) {
  SimOptions o;
  o.models[2] = "other";
  SimJob& job = make(o);
  ASSERT_TRUE(job.run_until([&] { return job.generation() == 1; }));
  EXPECT_EQ(job.journal->size(), 2U);
  EXPECT_NE(job.member(2).refused.find("its model is 'other', the job's is 'm'"),
            std::string::npos);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 0);
}

TEST_F(StartTest, AnotherFingerprintIsRefusedOrLetInUnderBitsOff) {
  for (bool off : {false, true}) {
    SimOptions o;
    o.fingerprints[2] = "avx512";
    o.any_fingerprint = off;
    SimJob& job = make(o);
    ASSERT_TRUE(job.run_until([&] { return job.generation() == 1; }));
    EXPECT_EQ(job.journal->size(), off ? 3U : 2U);
    EXPECT_EQ(job.heard("--reproducible=off"), off);
    EXPECT_EQ(job.member(2).refused.empty(), off);
  }
}

TEST_F(StartTest, AJoinerThatNeverBecomesReadyIsKilledAndNamed) {
  SimOptions o;
  o.never_join = {3};
  o.steps = 100000;
  SimJob& job = make(o);
  ASSERT_TRUE(job.steady(1, 3));
  job.kill(2);
  ASSERT_TRUE(job.run_until([&] { return job.members.contains(3); }));
  const base::TimePoint started = job.now;
  while (job.member(3).alive && job.now < started + seconds(400)) {
    job.pass(seconds(1));
    while (job.deliver_to_agent() || job.deliver_to_coordinator() || job.report_death()) {
    }
  }
  EXPECT_FALSE(job.member(3).alive);
  EXPECT_TRUE(job.heard("member 3 was not ready within 300 s"));
  // Another try.
  ASSERT_TRUE(job.run_until([&] { return job.journal->rank_of(proto::MemberId{4}) >= 0; }));
}

TEST_F(StartTest, AtTheStartThoseThatAreReadyGoAheadWithoutTheOneThatIsNot) {
  SimOptions o;
  o.never_join = {1};
  SimJob& job = make(o);
  ASSERT_TRUE(job.run_until([&] { return job.generation() == 1; }));
  EXPECT_EQ(job.journal->why, "2 of 3 members are ready");
  EXPECT_TRUE(job.heard("member 1 was not ready within 300 s"));
}

TEST_F(StartTest, AtTheStartTooFewFailTheJob) {
  SimOptions o;
  o.never_join = {1, 2};
  SimJob& job = make(o);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 1);
  EXPECT_EQ(job.end->reason, "member 2 was not ready within 300 s: 1 of at least 2 members");
}

TEST_F(StartTest, AJobThatCannotGoOnWithoutItsMemberGetsAnotherSoon) {
  SimOptions o;
  o.steps = 100000;
  o.policy.min = o.policy.target;
  SimJob& job = make(o);
  ASSERT_TRUE(job.steady(1, 3));
  const base::TimePoint killed = job.now;
  job.kill(2);
  ASSERT_TRUE(job.run_until([&] {
    job.pass(milliseconds(5));
    return job.members.contains(3);
  }));
  EXPECT_LT(job.now - killed, milliseconds(250));
}

TEST_F(StartTest, ACrashingProgramIsNotRestartedInAHotLoop) {
  SimOptions o;
  o.steps = 100000;
  for (proto::MemberId id = 3; id < 20; ++id) o.never_join.insert(id);
  SimJob& job = make(o);
  ASSERT_TRUE(job.steady(1, 3));
  const base::TimePoint killed = job.now;
  job.kill(2);
  std::vector<base::TimePoint> starts;
  for (proto::MemberId id = 3; id < 6; ++id) {
    ASSERT_TRUE(job.run_until([&] {
      job.pass(milliseconds(5));
      return job.members.contains(id);
    }));
    starts.push_back(job.now);
    job.exit(id, 1);
  }
  EXPECT_GE(starts[0] - killed, milliseconds(300));  // while survivors recover
  EXPECT_GE(starts[1] - starts[0], milliseconds(100));
  EXPECT_GE(starts[2] - starts[1], milliseconds(200));
  ASSERT_TRUE(
      job.run_until([&] { return job.heard("3 members in a row ended before they were ready"); }));
  const base::TimePoint later = job.now + seconds(60);
  (void)job.run_until([&] {
    job.pass(milliseconds(500));
    return job.now > later;
  });
  EXPECT_EQ(job.members.size(), 6U);
  EXPECT_EQ(job.journal->size(), 2U);
  EXPECT_TRUE(job.ask(proto::ResizeRequest{3}).ok);  // somebody has mended it
  ASSERT_TRUE(job.run_until([&] { return job.members.size() > 6; }));
}

TEST_F(StartTest, ARestartBeforeTheFirstWorldFindsTheMembersThatRun) {
  SimJob& job = make({});
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 3 && job.member(0).ready; }));
  job.restart_coordinator(true);
  ASSERT_TRUE(job.steady(1, 3));
  EXPECT_EQ(job.members.size(), 3U);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 0);
}

TEST_F(StartTest, AResizeBeforeAnybodyJoinedIsRefused) {
  SimOptions options = plain(2, 3);
  options.policy.max = options.policy.slots = 4;
  SimJob& job = make(options);
  ASSERT_TRUE(running(3));
  for (std::uint32_t size : {2U, 4U}) {
    EXPECT_EQ(
        job.ask(proto::ResizeRequest{size}),
        (proto::Reply{false, "resize " + std::to_string(size) + ": no member has joined yet"}));
  }
}

// Once the program is seen to join, what the relaunch left out is made up for.
TEST_F(StartTest, AfterAFailedStartTheTargetIsReachedOnceSomebodyIsReady) {
  for (const bool replace : {true, false}) {
    SimOptions o;
    o.policy.replace = replace;
    o.never_join = {1};
    o.steps = 100;
    SimJob& job = make(o);
    ASSERT_TRUE(job.deliver_to_agent() && job.deliver_to_agent() && job.deliver_to_agent());
    job.exit(1, 3);
    ASSERT_TRUE(job.report_death() && job.deliver_to_coordinator());
    ASSERT_TRUE(job.steady(1, 2));
    EXPECT_TRUE(job.heard("relaunch with 2 members instead of 3"));
    EXPECT_EQ(job.steady(2, 3), replace);
    if (!replace) {
      EXPECT_EQ(job.worlds.size(), 1U);
      continue;
    }
    EXPECT_EQ(job.past.intent->desired, 3U);
    ASSERT_TRUE(job.run_to_end());
  }
}

TEST_F(StartTest, WhatBeganARoundAndEndedItIsRememberedOnce) {
  SimOptions o;
  o.policy.target = 2;
  o.steps = 100;
  SimJob& job = make(o);
  ASSERT_TRUE(job.steady(1, 2));
  ASSERT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  ASSERT_TRUE(job.steady(2, 3));
  ASSERT_EQ(job.past.sentences.size(), 2U);
  EXPECT_EQ(job.past.sentences.back().text, "member 2 is warm: 2 -> 3 members");
}

}  // namespace
}  // namespace regroup::membership
