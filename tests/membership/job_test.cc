// A running job: kills, joins, notices, resizes, finish. Members move in turn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

using std::chrono::seconds;

TEST_F(JobTest, StartsAndFinishes) {
  SimJob& job = start();
  EXPECT_EQ(job.journal->why, "the first 3 members are ready");
  EXPECT_FALSE(job.journal->members[0].needs_state);
  EXPECT_TRUE(job.journal->members[1].needs_state);
  EXPECT_EQ(job.member(2).start, (proto::Start{2, 2, 3, 0}));
  expect_success(job);
  EXPECT_EQ(job.worlds.size(), 1U);
}

TEST_F(JobTest, Fault2_TheOthersGoOnWhenOneIsKilled) {
  SimJob& job = start(never_replaced());
  job.kill(1);
  ASSERT_TRUE(job.steady(2, 2));
  EXPECT_EQ(job.journal->why.substr(0, 19), "member 1 was lost: ");
  EXPECT_TRUE(job.heard("member 1 (pid 1001): killed by signal 9 (SIGKILL)"));
  expect_success(job);
  EXPECT_EQ(job.members.size(), 3U);
}

TEST_F(JobTest, Fault2_AKilledMemberIsReplaced) {
  SimJob& job = start();
  job.kill(0);
  ASSERT_TRUE(job.steady(3, 3));
  EXPECT_EQ(job.journal->why, "member 3 is warm: 2 -> 3 members");
  const proto::WorldMember& newcomer = job.journal->members[2];
  EXPECT_TRUE(newcomer.needs_state);
  EXPECT_EQ(newcomer.from_step, job.journal->resume.step() + 1);
  expect_success(job);
}

// Whatever is killed when, the shown step only grows, and a member has applied it.
TEST_F(JobTest, ShownProgressNeverGoesBackNorBeyondWhatIsCommitted) {
  for (int between = 7; between < 400; between += 39) {
    SimOptions o;
    o.policy.min = 1;
    o.steps = 20;
    SimJob job(o);
    proto::Step shown = 0;
    int moves = 0;
    proto::MemberId victim = 0;
    const auto check = [&] {
      const bool due = job.generation() > 0 && ++moves % between == 0 && victim < 4;
      if (due && job.members.contains(victim) && job.member(victim).alive) job.kill(victim++);
      const auto progress = job.coordinator->progress(job.now);
      if (!progress) return job.end.has_value();
      EXPECT_GE(progress->step, shown);
      shown = progress->step;
      proto::Step applied = 0;
      for (const auto& [id, member] : job.members) applied = std::max(applied, member.applied);
      EXPECT_LE(shown, applied);
      return job.end.has_value();
    };
    ASSERT_TRUE(job.run_until(check)) << job.coordinator->status_json(job.now);
    if (job.end->exit_code == 0) {
      EXPECT_EQ(shown, o.steps);
    }
  }
}

TEST_F(JobTest, Fault21_AKillAtEveryMomentOfTheJobAndAnotherInItsRound) {
  for (int first = 1; first < 160; first += 3) {
    for (int second : {1, 2, 3, 5, 8}) {
      SimOptions o;
      o.policy.min = 1;
      SimJob job(o);
      int moves = 0;
      const auto moment = [&](int n) { return job.run_until([&] { return ++moves > n; }); };
      if (!job.steady(1, 3) || !moment(first)) continue;
      job.kill(1);
      moves = 0;
      (void)moment(second);
      if (!job.end) job.kill(2);
      ASSERT_TRUE(job.run_to_end())
          << first << " " << second << job.coordinator->status_json(job.now);
      ASSERT_EQ(job.broken, std::vector<std::string>{}) << first << " " << second;
      ASSERT_EQ(job.end->exit_code, 0) << job.end->reason;
    }
  }
}

TEST_F(JobTest, ChangesDuringARoundAreFoldedIn) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(1));
  job.kill(1);
  ASSERT_TRUE(job.report_death());            // the futex of its slot
  ASSERT_TRUE(job.deliver_to_coordinator());  // the round is open
  EXPECT_EQ(nlohmann::json::parse(job.coordinator->status_json(job.now))["stage"], "regrouping");
  job.kill(2);
  job.bury();
  ASSERT_TRUE(job.run_until([&] { return !job.says.empty() && job.heard("holding"); }));
  ASSERT_TRUE(job.run_until([&] { return job.generation() >= 2; }));
  EXPECT_EQ(job.worlds[1].why.find(
                "member 1 was lost (killed by signal 9), member 2 was lost (killed by signal 9), "),
            0U)
      << job.worlds[1].why;
  expect_success(job);
}

TEST_F(JobTest, Fault6_BelowMinHoldsThenFails) {
  SimJob& job = start(never_replaced());
  ASSERT_TRUE(job.reach(2));
  job.kill(0);
  job.kill(2);
  job.bury();
  const base::TimePoint before = job.now;
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 1);
  EXPECT_EQ(job.end->reason, "1 of at least 2 members for 30 s (--min-members-timeout)");
  EXPECT_TRUE(
      job.heard("1 of at least 2 members: holding the state, 30 s of --min-members-timeout left"));
  EXPECT_GE(job.now - before, seconds(30));
  EXPECT_LE(job.now - before, seconds(32));
  EXPECT_EQ(job.worlds.size(), 1U);
}

TEST_F(JobTest, HistoryTellsOnceThatTheStateIsHeld) {
  SimOptions options = never_replaced();
  options.policy.min = 3;
  SimJob& job = start(std::move(options));
  ASSERT_TRUE(job.reach(2));
  job.kill(0);
  job.bury();
  while (job.deliver_to_coordinator()) {
  }
  job.pass(seconds(2));  // the sentence says other seconds once the reports are complete
  ASSERT_TRUE(job.run_until([&] { return job.heard("holding the state, 28 s"); }));
  const auto status = nlohmann::json::parse(job.coordinator->status_json(job.now));
  const auto told = std::ranges::count_if(status["history"], [](const nlohmann::json& event) {
    return event["why"].get<std::string>().find("holding the state") != std::string::npos;
  });
  EXPECT_EQ(told, 1) << status["history"];
  EXPECT_NE(status["held"].get<std::string>().find("holding the state"), std::string::npos);
}

TEST_F(JobTest, Fault6_BelowMinGoesOnWhenCapacityReturns) {
  SimJob& job = start(never_replaced());
  ASSERT_TRUE(job.reach(2));
  job.kill(0);
  job.kill(2);
  job.bury();
  ASSERT_TRUE(job.run_until([&] { return job.heard("holding"); }));
  job.pass(seconds(20));
  EXPECT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 1; }));
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{1}), 0);
  expect_success(job);
}

TEST_F(JobTest, Fault4_WhenAllDieTheFirstStatusIsTheJobs) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(1));
  job.exit(1, 7);
  job.bury();
  while (job.deliver_to_coordinator() || job.deliver_to_agent()) {
  }
  ASSERT_EQ(job.generation(), 2U);
  job.pass(std::chrono::milliseconds(1));
  job.kill(0);  // nothing was committed since
  job.kill(2);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 7);
  EXPECT_EQ(job.end->reason,
            "all members of generation 2 are lost, first member 1 (exited with status 7)");
}

TEST_F(JobTest, WhenAllExitWithZeroBeforeFinishTheLastLineSaysSo) {
  SimJob& job = start(never_replaced());
  ASSERT_TRUE(job.reach(1));
  for (const proto::MemberId member : {0, 1, 2}) job.exit(member, 0);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 1);
  EXPECT_EQ(job.end->reason, fmt::format("the program ended without session.finish(), with status "
                                         "0, in all members of generation {}",
                                         job.generation()));
}

TEST_F(JobTest, ExitZeroBeforeFinishIsALoss) {
  SimJob& job = start(never_replaced());
  ASSERT_TRUE(job.reach(1));
  job.exit(2, 0);
  ASSERT_TRUE(job.steady(2, 2));
  EXPECT_TRUE(job.heard("member 2 (pid 1002): exited with status 0 before finish()"));
  expect_success(job);
}

TEST_F(JobTest, ANoticeLosesNoStepAndNobodyReplacesWhoLeft) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(1));
  EXPECT_EQ(job.ask(proto::NoticeRequest{1}).message, "member 1 leaves at the next step boundary");
  ASSERT_TRUE(job.steady(2, 2));
  EXPECT_EQ(job.journal->why, "member 1 leaves on notice at a step boundary: 3 -> 2 members");
  ASSERT_TRUE(job.run_until([&] { return !job.member(1).alive; }));
  EXPECT_FALSE(job.heard("member 1 (pid"));
  expect_success(job);
  EXPECT_EQ(job.members.size(), 3U);
}

TEST_F(JobTest, ANoticeAtTheMinimumWaitsForASuccessor) {
  SimOptions o;
  o.policy.target = 2;
  SimJob& job = start(o);
  EXPECT_EQ(job.ask(proto::NoticeRequest{0}).message,
            "member 0 leaves as soon as it can be spared");
  ASSERT_TRUE(job.run_until([&] { return !job.member(0).alive; }));
  ASSERT_GE(job.worlds.size(), 3U);
  EXPECT_EQ(job.worlds[1].size(), 3U);
  EXPECT_EQ(job.worlds[2].why, "member 0 leaves on notice at a step boundary: 3 -> 2 members");
  expect_success(job);
}

TEST_F(JobTest, TheOnlyHolderOfTheStateLeavesOnlyAfterACopyIsProved) {
  SimOptions o;
  o.policy.min = o.policy.target = 1;
  SimJob& job = start(o);
  ASSERT_TRUE(job.reach(2));
  ASSERT_TRUE(job.ask(proto::NoticeRequest{0}).ok);
  expect_success(job);
  EXPECT_FALSE(job.member(0).alive);
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{1}), 0);
}

TEST_F(JobTest, ResizeInBothDirectionsAndDuringARound) {
  SimOptions o;
  SimJob& job = start(o);
  EXPECT_TRUE(job.ask(proto::ResizeRequest{4}).ok);
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_EQ(job.member(3).start, (proto::Start{3, 3, 4, 0}));
  EXPECT_TRUE(job.ask(proto::ResizeRequest{2}).ok);  // the newest leave
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 2; }));
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{1}), 1);
  job.kill(1);
  ASSERT_TRUE(job.report_death());
  ASSERT_TRUE(job.deliver_to_coordinator());
  EXPECT_EQ(job.ask(proto::ResizeRequest{3}).message, "target 3, 2 in the World now");
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 3; }));
  expect_success(job);
}

TEST_F(JobTest, RequestsThatCannotBeServedSayWhy) {
  SimJob& job = start();
  EXPECT_EQ(job.ask(proto::ResizeRequest{9}),
            (proto::Reply{false, "resize 9: this job can have 2 to 4 members (-np 2:4)"}));
  EXPECT_EQ(job.ask(proto::ResizeRequest{1}).ok, false);
  EXPECT_EQ(job.ask(proto::KillRequest{8}),
            (proto::Reply{false, "kill-member 8: no such member; there are 0, 1, 2"}));
  EXPECT_EQ(job.ask(proto::NoticeRequest{8}),
            (proto::Reply{false, "notice 8: no such member; there are 0, 1, 2"}));
  expect_success(job);
}

TEST_F(JobTest, KillMemberKillsAndReplaces) {
  SimJob& job = start();
  EXPECT_EQ(job.ask(proto::KillRequest{2}).message, "member 2 is being killed");
  ASSERT_TRUE(job.steady(3, 3));
  EXPECT_EQ(job.journal->rank_of(proto::MemberId{2}), -1);
  expect_success(job);
}

TEST_F(JobTest, Fault31_WhoDiesAfterOthersFinishedFailsNothing) {
  SimJob& job = start();
  const auto finished = [&](proto::MemberId id) {
    return job.member_slot(id).finished.load() != 0;
  };
  ASSERT_TRUE(job.run_until([&] { return finished(0) || finished(1); }));
  ASSERT_FALSE(finished(2));
  job.kill(2);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 0) << job.end->reason;
}

TEST_F(JobTest, ResizeOfAFinishingJobIsRefused) {
  SimJob& job = start();
  const auto refused = [&] {
    return job.ask(proto::ResizeRequest{4}).message == "resize 4: the job is finishing";
  };
  ASSERT_TRUE(job.run_until([&] { return !job.member(0).alive && refused(); }));
  expect_success(job);
}

TEST_F(JobTest, AFailureAfterFinishIsTheJobsStatus) {
  SimJob& job = start();
  ASSERT_TRUE(job.run_until([&] { return job.member_slot(1).finished.load() != 0; }));
  job.exit(1, 3);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_EQ(job.end->exit_code, 3);
  EXPECT_EQ(job.worlds.size(), 1U);
}

TEST_F(JobTest, StatusShowsMembersRoundAndHistory) {
  SimJob& job = start();
  ASSERT_TRUE(job.reach(2));
  job.pass(seconds(2));
  ASSERT_TRUE(job.reach(3));
  auto status = nlohmann::json::parse(job.coordinator->status_json(job.now));
  EXPECT_EQ(status["generation"], 1);
  EXPECT_EQ(status["size"], 3);
  EXPECT_EQ(status["target"], 3);
  EXPECT_EQ(status["stage"], "steady");
  EXPECT_TRUE(status["round"].is_null());
  ASSERT_EQ(status["members"].size(), 3U);
  EXPECT_EQ(status["members"][1]["state"], "active");
  EXPECT_EQ(status["members"][1]["rank"], 1);
  EXPECT_EQ(status["members"][1]["phase"], "committed");
  EXPECT_EQ(status["members"][1]["position"]["region"], 0);
  EXPECT_GE(status["members"][1]["position"]["step"], 2);
  EXPECT_GE(status["members"][1]["reports"], 1);
  EXPECT_GE(status["step"], 2);
  EXPECT_EQ(status["history"][0]["why"], "the first 3 members are ready");
  job.kill(0);
  ASSERT_TRUE(job.report_death());
  while (nlohmann::json::parse(job.coordinator->status_json(job.now))["stage"] == "steady") {
    ASSERT_TRUE(job.deliver_to_coordinator());
  }
  status = nlohmann::json::parse(job.coordinator->status_json(job.now));
  EXPECT_EQ(status["round"], (nlohmann::json{{"revoked", 1}, {"waiting_for_nodes", {0}}}));
}

}  // namespace
}  // namespace regroup::membership
