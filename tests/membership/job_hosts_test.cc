// Jobs on several hosts: which are lost, come, fall silent. docs/design/elastic_hosts.md.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/membership/hosts_fixture.h"

namespace regroup::membership {
namespace {

using testing::ElementsAre;

TEST_F(HostsTest, AsManyMembersAsSlotsFillTheHostsInTheirOrder) {
  SimJob& job = start_on(three_hosts(), 6);
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 1, 1, 2, 2));
  expect_success(job);
}

TEST_F(HostsTest, ByNodeTheyAreDealtOut) {
  SimOptions o = three_hosts();
  o.policy.target = 3;
  o.policy.by_node = true;
  SimJob& job = start_on(o, 3);
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 1, 2));
}

// Who resizes a job asks the allocator for slots that are missing; nobody does where it gives none.
TEST_F(HostsTest, AJobThatGrowsWaitsForTheSlotsThatItIsToFill) {
  SimOptions o = three_hosts();
  o.policy.max = 8;
  SimJob& fixed = start_on(o, 6);
  const proto::Reply refused = fixed.ask(proto::ResizeRequest{7});
  EXPECT_FALSE(refused.ok);
  EXPECT_EQ(refused.message, "resize 7: the allocation has 6 slots");

  o.policy.grows = true;
  SimJob& job = start_on(o, 6);
  EXPECT_TRUE(job.ask(proto::ResizeRequest{7}).ok);
  EXPECT_TRUE(job.reach(3));
  EXPECT_EQ(job.journal->size(), 6U);
  job.resize_host(1, 3);
  EXPECT_TRUE(job.run_until([&] { return job.journal->size() == 7; }));
  expect_success(job);
}

TEST_F(HostsTest, WithoutSlotsForTheLeastTheJobEndsAndSaysSo) {
  SimOptions o = three_hosts();
  o.policy.min = o.policy.target = 7;
  o.policy.max = 8;
  job_.emplace(o);
  ASSERT_TRUE(job_->end);
  EXPECT_EQ(job_->end->reason, "the hosts that came up have 6 slots for at least 7 members");
}

TEST_F(HostsTest, WithoutAnyHostLikewise) {
  SimOptions o = three_hosts();
  o.hosts = {0};
  o.policy.min = 1;
  job_.emplace(o);
  ASSERT_TRUE(job_->end);
  EXPECT_EQ(job_->end->reason, "the hosts that came up have 0 slots for at least 1 member");
}

TEST_F(HostsTest, HostsThatAreLostBeforeTheFirstWorldAreNotWaitedFor) {
  SimOptions o = three_hosts();
  o.policy.min = 4;
  job_.emplace(o);
  job_->lose_host(0);
  EXPECT_FALSE(job_->end);
  job_->lose_host(1);
  ASSERT_TRUE(job_->end);
  EXPECT_EQ(job_->end->reason, "the hosts that came up have 2 slots for at least 4 members");
}

// The launch that follows the loss has as many members as there are slots left.
TEST_F(HostsTest, AfterALossBeforeTheFirstWorldNoHostRunsMoreThanItsSlots) {
  SimOptions o = three_hosts();
  o.policy.target = 6;
  o.steps = 100;
  job_.emplace(o);
  job_->lose_host(2);
  ASSERT_TRUE(job_->steady(1, 4)) << job_->coordinator->status_json(job_->now);
  EXPECT_THAT(nodes(*job_->journal), ElementsAre(0, 0, 1, 1));
  job_->add_host(2);
  EXPECT_TRUE(job_->run_until([&] { return job_->journal->size() == 6; }));
  expect_success(*job_);
}

TEST(LostHosts, OneLostBeforeThereWasACoordinatorIsNamed) {
  Coordinator coordinator({.min = 1, .max = 2}, {.id = "sim", .nodes = {}}, 1);
  const Effects effects =
      coordinator.handle({}, {}, {0, proto::NodeLost{7, "host b: program x was not found"}, 7});
  EXPECT_TRUE(std::ranges::any_of(effects, [](const Effect& effect) {
    const auto* say = std::get_if<Say>(&effect);
    return say != nullptr && say->sentence == "host b: program x was not found";
  }));
}

TEST_F(HostsTest, ALostHostTakesItsMembersAndTheOthersGoOn) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(3));
  job.lose_host(1);
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(job.journal->why, testing::HasSubstr("member 2 was lost (its host was lost)"));
  expect_success(job);
}

TEST_F(HostsTest, AHostThatIsWantedBackIsLeftAtAStepBoundary) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(3));
  job.resize_host(1, 0);
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(job.journal->why, testing::Not(testing::HasSubstr("was lost")));
  EXPECT_FALSE(job.heard("was lost"));
  ASSERT_TRUE(job.run_until([&] { return job.living_on(1) == 0; }));
  job.lose_host(1);
  expect_success(job);
}

TEST_F(HostsTest, ACoordinatorThatComesLaterAsksForTheHostBackAgain) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(3));
  job.resize_host(1, 0);
  job.restart_coordinator(true);
  ASSERT_TRUE(job.run_until([&] { return job.living_on(1) == 0; }));
  EXPECT_FALSE(job.heard("was lost"));
  expect_success(job);
}

TEST_F(HostsTest, WhatIsSealedOnALostHostIsComputedAgain) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(2));
  job.kill(4);
  job.lose_host(1);
  ASSERT_TRUE(job.steady(2, 3));
  for (const proto::SlotId& slot_id : job.journal->plan) EXPECT_NE(slot_id.node, 1U);
  expect_success(job);
}

TEST_F(HostsTest, OfAHostWithoutALivingMemberNoSumIsCounted) {
  SimOptions o = three_hosts();
  o.policy.replace = false;
  SimJob& job = start_on(o, 6);
  ASSERT_TRUE(job.reach(2));
  job.kill(2);
  job.kill(3);
  ASSERT_TRUE(job.run_until([&] { return job.generation() > 1 && job.journal->size() == 4; }));
  for (const proto::SlotId& slot_id : job.journal->plan) EXPECT_NE(slot_id.node, 1U);
  expect_success(job);
}

TEST_F(HostsTest, LostMembersAreReplacedOnAHostThatCame) {
  SimJob& job = start_on(three_hosts(), 6);
  job.lose_host(2);
  ASSERT_TRUE(job.steady(2, 4));
  EXPECT_EQ(job.add_host(2), 3U);
  ASSERT_TRUE(job.run_until([&] { return job.journal->size() == 6; }));
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 1, 1, 3, 3));
  EXPECT_TRUE(job.heard("host h2 is lost"));
  expect_success(job);
}

// The job has begun without it, since it was late.
TEST_F(HostsTest, AHostThatComesWhileTheFirstMembersStartIsUsed) {
  SimOptions o = three_hosts();
  o.hosts = {2, 2};
  o.steps = 100;
  SimJob& job = job_.emplace(o);
  ASSERT_EQ(job.generation(), 0U);
  EXPECT_EQ(job.add_host(2), 2U);
  ASSERT_TRUE(job.run_until([&] { return job.journal && job.journal->size() == 6; }));
  EXPECT_THAT(nodes(*job.journal), ElementsAre(0, 0, 1, 1, 2, 2));
  expect_success(job);
}

TEST_F(HostsTest, AHostThatComesInTheMiddleOfARoundDoesNotHoldItUp) {
  SimJob& job = start_on(three_hosts(), 6);
  job.kill(5);
  ASSERT_TRUE(in_a_round(job));
  (void)job.add_host(2);
  ASSERT_TRUE(job.run_until([&] { return job.generation() >= 2; }));
  expect_success(job);
}

TEST_F(HostsTest, AHostLostInTheMiddleOfARoundIsWaitedForNoMore) {
  SimJob& job = start_on(three_hosts(), 6);
  job.kill(0);
  ASSERT_TRUE(in_a_round(job));
  job.lose_host(1);
  ASSERT_TRUE(job.run_until([&] { return job.generation() >= 2; }));
  expect_success(job);
}

TEST_F(HostsTest, ARestartedCoordinatorMissesTheHostThatWentMeanwhile) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(2));
  job.end = Done{};  // so that the coordinator does not hear of it
  job.lose_host(1);
  job.end.reset();
  job.restart_coordinator(true);
  ASSERT_TRUE(job.steady(2, 4)) << job.coordinator->status_json(job.now);
  expect_success(job);
}

TEST_F(HostsTest, WithAllThatHeldTheStateTheJobIsLost) {
  SimOptions o = three_hosts();
  o.policy.target = 2;
  SimJob& job = start_on(o, 2);
  ASSERT_TRUE(job.reach(2));
  job.lose_host(0);
  ASSERT_TRUE(job.run_to_end());
  EXPECT_NE(job.end->exit_code, 0);
}

// Rules of the lease of tests/model: their counterexamples need a World that goes on without any
// member of the one before, next to hosts that were dropped but live. Whichever host comes, at
// whatever moment both hosts of the World are lost, and under whichever coordinator, there is none.
TEST_F(HostsTest, NobodyGoesOnFromTheSnapshotAfterTheWorldIsGone) {
  bool learned = false;
  for (int moment = 0; !learned; ++moment) {
    SimOptions o = three_hosts();
    o.policy.target = 4;
    o.policy.min = 1;
    SimJob& job = start_on(o, 4);
    ASSERT_TRUE(job.reach(2));
    ASSERT_TRUE(job.ask(proto::ResizeRequest{6}).ok);
    ASSERT_TRUE(job.run_until([&, moves = 0]() mutable { return ++moves > moment; }));
    const auto before = job.worlds.size();
    learned = job.journal->size() == 6;
    job.lose_host(0);
    if (moment % 2 == 1) job.restart_coordinator(moment % 4 == 1);
    job.lose_host(1);
    ASSERT_TRUE(job.run_to_end()) << moment;
    if (!learned) {
      EXPECT_EQ(job.worlds.size(), before) << moment;
      EXPECT_NE(job.end->exit_code, 0) << moment;
    }
    EXPECT_EQ(job.broken, std::vector<std::string>{}) << moment;
  }
}

TEST_F(HostsTest, AHostThatWasGivenUpIsHeardNoMore) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(2));
  job.lose_host(1);
  ASSERT_TRUE(job.steady(2, 4));
  const auto say = [&](proto::Body body) {
    return job.coordinator->handle(job.now, {Sender::Kind::kAgent, 1},
                                   {job.incarnation, std::move(body)});
  };
  EXPECT_TRUE(say(proto::Report{2, {}}).empty());
  EXPECT_TRUE(say(proto::MemberReady{0, {.member = 98, .elements = 1, .model = "m"}}).empty());
  EXPECT_TRUE(say(proto::MemberLost{.member = 99, .joined = true, .signal = 9}).empty());
  EXPECT_EQ(job.coordinator->world().generation, 2U);
  expect_success(job);
}

TEST_F(HostsTest, AMembersWordAboutASilentHostIsEnough) {
  SimJob& job = start_on(three_hosts(), 6);
  ASSERT_TRUE(job.reach(2));
  const auto tell = [&](proto::Body body) {
    return job.coordinator->handle(job.now, {Sender::Kind::kAgent, 0},
                                   {job.incarnation, std::move(body)});
  };
  EXPECT_TRUE(tell(proto::NodeSilent{1, true}).empty());
  const Effects effects = tell(proto::PeerSuspect{2, "no answer"});
  const auto given_up = std::find_if(effects.begin(), effects.end(), [](const Effect& effect) {
    const auto* send = std::get_if<ToAgent>(&effect);
    return send != nullptr && std::holds_alternative<proto::NodeLost>(send->body);
  });
  ASSERT_NE(given_up, effects.end());
  EXPECT_EQ(std::get<ToAgent>(*given_up).node, 1U);
}

TEST_F(HostsTest, AMembersWordAboutAHostThatIsHeardIsNot) {
  SimJob& job = start_on(three_hosts(), 6);
  const auto effects = job.coordinator->handle(
      job.now, {Sender::Kind::kAgent, 0}, {job.incarnation, proto::PeerSuspect{2, "no answer"}});
  EXPECT_TRUE(std::none_of(effects.begin(), effects.end(), [](const Effect& effect) {
    return std::holds_alternative<ToAgent>(effect);
  }));
}

TEST(CoordinatorOfHosts, GoesOnFromWhatTheHostsHaveHadASayIn) {
  JobInfo job;
  job.nodes.clear();
  Coordinator coordinator({.shards = 2, .resume = 200}, job, 1);
  const base::TimePoint now{std::chrono::seconds(5)};
  (void)coordinator.tick(now);
  const auto tell = [&](proto::Body body) {
    return coordinator.handle(now, {Sender::Kind::kAgent, 1}, {1, std::move(body), 1});
  };
  (void)tell(proto::NodeUp{1, "a", 1});
  (void)tell(proto::NodesKnown{300, 4});
  (void)tell(proto::MemberReady{0, {.member = 0, .elements = 1, .model = "m"}});
  ASSERT_EQ(coordinator.world().generation, 1U) << coordinator.status_json(now);
  EXPECT_EQ(coordinator.world().resume, proto::Position::of(300));
  EXPECT_EQ(coordinator.world().shards, 4U);
  (void)tell(proto::NodesKnown{100, 8});  // said once
  EXPECT_EQ(coordinator.world().resume, proto::Position::of(300));
}

TEST_F(HostsTest, WhoDeclaresAnotherModelOnAnotherHostIsRefused) {
  SimOptions o = three_hosts();
  o.models[2] = "another";
  o.policy.target = 3;
  o.policy.replace = false;
  SimJob& job = start_on(o, 2);
  EXPECT_TRUE(job.heard("member 2 is refused: its model is 'another', the job's is 'm'"));
}

// Who has the state ends its step and leaves, so that the state can be saved: no other member can
// come.
TEST_F(HostsTest, BelowMinWhatIsLeftLeavesWhenTheEndOfTheJobIsAnnounced) {
  for (const bool announced_first : {true, false}) {
    SimOptions o = three_hosts();
    o.policy.min = 6;
    SimJob& job = start_on(o, 6);
    ASSERT_TRUE(job.reach(10));
    const auto announce = [&] {
      for (const proto::NodeId node : job.hosts()) job.resize_host(node, 0);
    };
    if (announced_first) announce();
    job.kill(1);
    job.kill(4);
    if (!announced_first) announce();
    ASSERT_TRUE(job.run_to_end()) << job.coordinator->status_json(job.now);
    EXPECT_EQ(job.end->exit_code, kEndedOnNotice) << job.end->reason;
    EXPECT_FALSE(job.heard("holding the state"));
    EXPECT_EQ(job.broken, std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace regroup::membership
