// A coordinator that dies and starts again: what it finds, keeps and gives up.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

using std::chrono::seconds;

TEST_F(JobTest, Fault32_ARestartedCoordinatorGoesOnWhenAllAgree) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(2));
  while (job.deliver_to_coordinator() || job.deliver_to_agent()) {
  }
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until(
      [&] { return job.heard("incarnation 2 of the coordinator continues with generation 1"); }));
  EXPECT_EQ(job.worlds.size(), 1U);
  job.kill(2);  // and it still rules
  ASSERT_TRUE(job.steady(3, 3));
  EXPECT_EQ(job.journal->incarnation, 2U);
  EXPECT_TRUE(job.members.contains(3));
  expect_success(job);
}

TEST_F(JobTest, Fault32_ARestartedCoordinatorRegroupsWhenTheWorldIsOver) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(2));
  job.kill(2);
  ASSERT_TRUE(job.report_death());
  ASSERT_TRUE(job.deliver_to_coordinator());
  ASSERT_TRUE(job.deliver_to_agent());  // revoked, and then it dies with the report unread
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 1; }));
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{2}), -1);
  expect_success(job);
}

TEST_F(JobTest, Fault32_AWorldJournaledButNeverAnnouncedIsSkipped) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(2));
  job.kill(2);
  job.bury();
  while (job.generation() == 1) ASSERT_TRUE(job.deliver_to_coordinator() || job.deliver_to_agent());
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 2; }));
  EXPECT_FALSE(job.agent().arena().read_world(2).ok());
  expect_success(job);
}

TEST(Coordinator, TheNextGenerationIsAboveEveryOneThatAnybodyKnows) {
  proto::World w{
      .incarnation = 1, .generation = 3, .shards = 2, .members = {{.id = 4}}, .plan = {{}, {}}};
  Coordinator coordinator({.shards = 2}, {}, 2, JournaledState{.world = w});
  const base::TimePoint now{seconds(5)};
  const auto begin = coordinator.tick(now);
  EXPECT_TRUE(std::holds_alternative<proto::Hello>(std::get<ToAgent>(begin.at(1)).body));
  const proto::SlotReport slot_report{
      .member = 4, .state = {proto::Phase::kCommitted, false, 3, proto::Position::of(8)}};
  const auto told = coordinator.handle(now, {}, {2, proto::HelloReply{5, 6, {slot_report}}});
  EXPECT_EQ(std::get<proto::Revoke>(std::get<ToAgent>(told.at(0)).body).generation, 6U);
  EXPECT_TRUE(coordinator.handle(now, {}, {1, proto::Report{6, {slot_report}}})
                  .empty());  // to an earlier incarnation
  (void)coordinator.handle(now, {}, {2, proto::Report{6, {slot_report}}});
  EXPECT_EQ(coordinator.world().generation, 7U);
  EXPECT_EQ(coordinator.world().resume, proto::Position::of(8));
}

nlohmann::json status_of(SimJob& job) {
  return nlohmann::json::parse(job.coordinator->status_json(job.now));
}

TEST_F(JobTest, ARestartedCoordinatorKeepsTheTargetAndTheSentences) {
  SimOptions o;
  o.policy.target = 2;
  SimJob& job = start(o);
  ASSERT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  job.restart_coordinator(true);  // before its command to start one is heard
  ASSERT_TRUE(job.steady(2, 3));
  const auto status = status_of(job);
  EXPECT_EQ(status["target"], 3);
  EXPECT_EQ(status["history"][0]["why"], "the first 2 members are ready");
  EXPECT_EQ(status["history"][1]["why"],
            "incarnation 2 of the coordinator continues with generation 1");
  EXPECT_GE(status["history"][0]["at"], 0.0);
  EXPECT_LT(status["history"][0]["at"], status["history"][1]["at"]);
  job.kill(1);
  ASSERT_TRUE(job.steady(4, 3));
  expect_success(job);
}

TEST_F(JobTest, ARestartedCoordinatorGoesOnMakingTheJobSmaller) {
  SimJob& job = start();
  ASSERT_TRUE(job.ask(proto::ResizeRequest{2}).ok);
  job.restart_coordinator(true);  // before its notice is heard
  ASSERT_TRUE(job.steady(2, 2));
  EXPECT_EQ(status_of(job)["target"], 2);
  job.restart_coordinator(true);  // and it is not told once more that somebody left
  ASSERT_TRUE(job.reach(job.member(0).applied + 3));
  EXPECT_EQ(status_of(job)["target"], 2);
  EXPECT_EQ(job.generation(), 2U);
  expect_success(job);
}

TEST_F(JobTest, ANoticeLowersTheTargetOnceWhateverDies) {
  SimOptions o;
  o.policy.min = 1;
  SimJob& job = start(o);
  ASSERT_TRUE(job.ask(proto::NoticeRequest{1}).ok);
  for (int restarts = 0; job.generation() < 2; ++restarts) {
    ASSERT_LT(restarts, 50);
    job.restart_coordinator(restarts % 2 == 0);
    (void)job.run_until(
        [&, moves = 0]() mutable { return ++moves > 4 + restarts || job.generation() > 1; });
  }
  job.restart_coordinator(true);
  ASSERT_TRUE(job.reach(job.member(0).applied + 3));
  EXPECT_EQ(status_of(job)["target"], 2);
  EXPECT_EQ(job.journal->size(), 2U);
  expect_success(job);
}

// Whichever incarnation counted it, and whether the World without it was formed or not.
TEST_F(JobTest, ALossThatIsNotReplacedCountsOnce) {
  for (const bool told : {false, true}) {
    SimJob& job = start(never_replaced());
    ASSERT_TRUE(job.reach(2));
    job.kill(1);
    ASSERT_TRUE(job.report_death());
    if (told) {
      ASSERT_TRUE(job.deliver_to_coordinator());
    }
    job.restart_coordinator(true);
    ASSERT_TRUE(job.steady(2, 2));
    ASSERT_TRUE(job.reach(job.member(0).applied + 3));
    EXPECT_EQ(job.past.intent->desired, 2U) << told;
    EXPECT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
    ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 4; }));
    EXPECT_EQ(job.members.size(), 5U) << told;
    expect_success(job);
  }
}

TEST_F(JobTest, ADeathWhileNobodyCoordinatedIsFound) {
  SimJob& job = start(never_replaced());
  ASSERT_TRUE(job.reach(2));
  job.kill(1);
  job.bury();
  job.restart_coordinator(true);  // both messages are lost
  ASSERT_TRUE(job.steady(2, 2));
  EXPECT_TRUE(job.heard("member 1 (pid 1001): killed by signal 9"));
  expect_success(job);
}

class RelaunchTest : public JobTest {
 protected:
  // A program that never joins; its first launch has lost member 1, the second is of 3 and 4.
  SimJob& relaunched() {
    SimOptions o;
    o.policy = {.min = 2, .max = 3, .target = 3, .slots = 3, .shards = 4};
    for (proto::MemberId id = 0; id < 50; ++id) o.never_join.insert(id);
    job_.emplace(std::move(o));
    EXPECT_TRUE(job_->run_until([&] { return job_->members.size() == 3; }));
    job_->exit(1, 4);
    EXPECT_TRUE(job_->run_until([&] { return job_->members.size() == 5; }));
    return *job_;
  }
  void settle() {
    while (job_->deliver_to_agent() || job_->deliver_to_coordinator() || job_->report_death()) {
    }
    job_->pass(seconds(2));
  }
};

TEST_F(RelaunchTest, TheDeadOfAnEarlierLaunchDoNotEndThisOne) {
  for (const bool lost : {false, true}) {
    SimJob& job = relaunched();
    job.restart_coordinator(lost);
    settle();
    EXPECT_TRUE(job.member(3).alive && job.member(4).alive);
    EXPECT_EQ(job.members.size(), 5U);
    for (proto::MemberId id : {4U, 3U}) job.exit(id, 0);
    ASSERT_TRUE(job.run_to_end());
    EXPECT_EQ(job.end->exit_code, 0) << job.end->reason;
  }
}

TEST_F(RelaunchTest, ADeathInThisLaunchIsAnsweredAfterARestart) {
  SimJob& job = relaunched();
  job.kill(4);
  job.bury();
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 7; }));
  EXPECT_FALSE(job.member(3).alive);
  EXPECT_EQ(job.member(6).start, (proto::Start{6, 1, 2, 2}));
}

TEST_F(RelaunchTest, ALaunchOfWhichNobodyHeardIsMadeAgain) {
  SimJob& job = relaunched();
  job.exit(3, 4);
  // The next one is journaled, and then its coordinator dies.
  ASSERT_TRUE(job.run_until([&] { return job.past.intent->first_member == 5; }));
  ASSERT_EQ(job.members.size(), 5U);
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until([&] { return job.members.size() > 5; }));
  EXPECT_EQ(job.members.rbegin()->second.start.restart, 2U);
  EXPECT_GE(job.members.rbegin()->first, 7U);
}

TEST_F(RelaunchTest, ALaunchOfWhichSomeNeverHeardIsMadeAgain) {
  SimOptions o;
  for (proto::MemberId id = 0; id < 50; ++id) o.never_join.insert(id);
  job_.emplace(std::move(o));
  ASSERT_TRUE(job_->deliver_to_agent());
  ASSERT_TRUE(job_->deliver_to_agent());
  ASSERT_EQ(job_->members.size(), 2U);  // of 3
  job_->restart_coordinator(true);
  ASSERT_TRUE(job_->run_until([&] { return job_->members.size() == 5; }));
  EXPECT_FALSE(job_->member(0).alive || job_->member(1).alive);
  EXPECT_EQ(job_->member(3).start,
            (proto::Start{3, 0, 3, 0}));  // no failure: all three, the first time
  EXPECT_TRUE(job_->heard(
      "the coordinator was restarted while members were being launched: they are launched again"));
}

TEST_F(JobTest, AReadyMemberThatDiedBeforeWorld1RelaunchesNobody) {
  SimOptions o;
  o.never_join = {2};
  job_.emplace(o);
  SimJob& job = *job_;
  ASSERT_TRUE(job.run_until(
      [&] { return job.members.size() == 3 && job.member(0).ready && job.member(1).ready; }));
  job.kill(0);
  job.bury();
  job.restart_coordinator(true);
  while (job.deliver_to_agent() || job.deliver_to_coordinator() || job.report_death()) {
  }
  EXPECT_TRUE(job.member(1).alive && job.member(2).alive);
  EXPECT_FALSE(job.heard("relaunch"));
}

TEST_F(JobTest, ADeathThatIsOverIsNotToldAgainAndDecidesNothing) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(2));
  job.exit(1, 9);
  ASSERT_TRUE(job.steady(3, 3));
  job.restart_coordinator(true);
  ASSERT_TRUE(
      job.run_until([&] { return job.heard("incarnation 2 of the coordinator continues"); }));
  while (job.deliver_to_agent() || job.deliver_to_coordinator()) {
  }
  EXPECT_EQ(
      std::count(job.says.begin(), job.says.end(), "member 1 (pid 1001): exited with status 9"), 1);
  job.pass(std::chrono::milliseconds(1));
  for (proto::MemberId id : {0U, 2U, 3U}) job.exit(id, 5);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 5) << job.end->reason;
}

// The members hold still for the Revoke; the disk can wait.
TEST_F(JobTest, ALossIsJournaledAfterTheRevokeAndBeforeTheNextWorld) {
  SimJob& job = start(never_replaced());
  job.kill(1);
  const auto effects = job.coordinator->handle(
      job.now, {}, {1, proto::MemberLost{.member = 1, .joined = true, .why = "member 1"}});
  std::ptrdiff_t revoke = -1, intent = -1;
  for (const Effect& e : effects) {
    const auto at = &e - effects.data();
    const auto* send = std::get_if<ToAgent>(&e);
    const auto* write = std::get_if<Journal>(&e);
    if (send != nullptr && std::holds_alternative<proto::Revoke>(send->body)) revoke = at;
    if (write != nullptr && std::holds_alternative<Intent>(write->entry)) intent = at;
  }
  EXPECT_GE(revoke, 0);
  EXPECT_GT(intent, revoke);
}

}  // namespace
}  // namespace regroup::membership
