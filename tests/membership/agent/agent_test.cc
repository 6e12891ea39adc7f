// AgentCore on a real arena: which members are accepted, which slot each gets, what is refused.
#include <gmock/gmock.h>

#include <algorithm>

#include "membership/agent/agent_core.h"

namespace regroup::membership {
namespace {

using proto::Body, proto::Join, proto::MemberId, proto::Phase, proto::Position, proto::StateWord;
using testing::HasSubstr;

class AgentTest : public testing::Test {
 protected:
  AgentEffects tell(Body body, proto::Incarnation incarnation = 1) {
    return agent_.handle({}, {incarnation, std::move(body)});
  }
  AgentEffects from(MemberId id, Body body) { return agent_.handle({id}, {0, std::move(body)}); }
  AgentEffects join(MemberId id,
                    Join join = {
                        .elements = 4, .state_bytes = 64, .model = "m", .fingerprint = "f"}) {
    (void)tell(proto::Start{.member = id});
    join.member = id;
    return from(id, join);
  }
  void ready(MemberId id) {
    (void)join(id);
    (void)from(id, proto::Ready{});
  }
  // The body of type B among the effects sent to the coordinator or to a member, or a default.
  template <class B>
  static std::optional<B> sent(const AgentEffects& effects) {
    for (const AgentEffect& e : effects) {
      const Body* body = nullptr;
      if (const auto* c = std::get_if<ToCoordinator>(&e)) body = &c->body;
      if (const auto* m = std::get_if<ToMember>(&e)) body = &m->body;
      if (body != nullptr && std::holds_alternative<B>(*body)) return std::get<B>(*body);
    }
    return std::nullopt;
  }
  static std::string warning(const AgentEffects& effects) {
    for (const AgentEffect& e : effects) {
      if (const auto* w = std::get_if<Warn>(&e)) return w->sentence;
    }
    return "";
  }
  static proto::World world(proto::Generation g, const std::vector<proto::SlotIndex>& slots,
                            const std::vector<proto::SlotIndex>& plan) {
    proto::World w{.incarnation = 1, .generation = g, .shards = 4};
    for (proto::SlotIndex s : slots) w.members.push_back({.id = s, .slot_id = {0, s}});
    for (proto::SlotIndex s : plan) w.plan.push_back({0, s});
    return w;
  }
  shmem::MemberSlot& member_slot(proto::SlotIndex slot) { return agent_.arena().member_slot(slot); }
  void set_state(proto::SlotIndex slot, Phase phase, proto::Generation g, Position at) {
    member_slot(slot).state.store(StateWord{phase, false, g, at}.pack());
  }
  StateWord state(proto::SlotIndex slot) {
    return shmem::load_state<shmem::RealPolicy>(member_slot(slot).state);
  }

  AgentCore agent_{{.slots = 3, .shards = 4, .seed = 99}};
};

TEST_F(AgentTest, TheFirstJoinMakesTheArena) {
  EXPECT_FALSE(agent_.arena().mapped());
  const auto effects = join(5);
  const auto welcome = sent<proto::Welcome>(effects);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(*welcome, (proto::Welcome{0, 4, 99}));
  EXPECT_TRUE(std::get<ToMember>(effects[0]).pass_memfd);
  EXPECT_EQ(agent_.arena().spec().elements, 4U);
  EXPECT_EQ(agent_.arena().spec().snapshot_bytes, 64U);
  EXPECT_EQ(member_slot(0).occupied.load(), 6U);
}

TEST_F(AgentTest, ReadyIsToldOnceAndTheSlotIsWatched) {
  (void)join(0);
  const auto effects = from(0, proto::Ready{});
  EXPECT_EQ(sent<proto::MemberReady>(effects)->slot, 0);
  EXPECT_EQ(sent<proto::MemberReady>(effects)->join.model, "m");
  EXPECT_TRUE(std::holds_alternative<WatchOwner>(effects[0]));
  EXPECT_TRUE(from(0, proto::Ready{}).empty());
}

TEST_F(AgentTest, WhatDiffersIsRefusedInASentenceThatNamesBothValues) {
  (void)join(0);
  struct {
    Join join;
    const char* words;
  } const rows[] = {
      {{.elements = 4, .state_bytes = 64, .model = "x", .fingerprint = "f"},
       "its model is 'x', the job's is 'm'"},
      {{.elements = 5, .state_bytes = 64, .model = "m", .fingerprint = "f"},
       "gradient elements is 5, the job's is 4"},
      {{.elements = 4, .element_bytes = 8, .state_bytes = 64, .model = "m", .fingerprint = "f"},
       "element size is 8, the job's is 4"},
      {{.elements = 4, .state_bytes = 65, .model = "m", .fingerprint = "f"},
       "state size is 65, the job's is 64"},
      {{.elements = 4, .state_bytes = 64, .model = "m", .fingerprint = "g"},
       "fingerprint is 'g', the job's is 'f'"},
  };
  MemberId id = 1;
  for (const auto& row : rows) {
    const auto effects = join(id, row.join);
    ASSERT_TRUE(sent<proto::Refused>(effects)) << row.words;
    EXPECT_THAT(sent<proto::Refused>(effects)->reason, HasSubstr(row.words));
    EXPECT_TRUE(std::holds_alternative<CloseMember>(effects.back()));
    ++id;
  }
  EXPECT_EQ(member_slot(1).occupied.load(), 0U);
}

TEST_F(AgentTest, BitsOffLetsAnotherFingerprintInAndSaysSo) {
  AgentCore loose({.slots = 3, .shards = 4, .any_fingerprint = true});
  for (MemberId id : {0U, 1U}) {
    (void)loose.handle({}, {1, proto::Start{.member = id}});
    const auto effects = loose.handle(
        {id},
        {0, Join{.member = id, .elements = 4, .model = "m", .fingerprint = id == 0 ? "f" : "g"}});
    EXPECT_TRUE(sent<proto::Welcome>(effects));
    if (id == 1) {
      EXPECT_THAT(warning(effects), HasSubstr("--reproducible=off"));
    }
  }
}

TEST_F(AgentTest, AnArenaThatDoesNotFitIsRefusedWithItsReason) {
  const auto effects = join(0, {.elements = 1ULL << 40, .model = "m"});
  ASSERT_TRUE(sent<proto::Refused>(effects));
  EXPECT_THAT(sent<proto::Refused>(effects)->reason, HasSubstr("arena: "));
  EXPECT_FALSE(agent_.arena().mapped());
  EXPECT_TRUE(sent<proto::Welcome>(join(1)));  // the next one may fit
}

TEST_F(AgentTest, StrangersSecondJoinsAndAFullNodeAreRefused) {
  EXPECT_THAT(sent<proto::Refused>(from(8, Join{.member = 8}))->reason,
              HasSubstr("not started by this agent"));
  for (MemberId id : {0U, 1U, 2U}) EXPECT_TRUE(sent<proto::Welcome>(join(id)));
  EXPECT_THAT(sent<proto::Refused>(from(1, Join{.member = 1}))->reason,
              HasSubstr("has joined before"));
  EXPECT_THAT(sent<proto::Refused>(join(3))->reason, HasSubstr("all 3 slots of node 0 are in use"));
}

// "no member had joined: relaunch": the next launch is not held to what a dead first joiner was.
TEST_F(AgentTest, ALaunchThatDiedBeforeWorld1IsForgotten) {
  (void)join(0);
  (void)agent_.on_reaped(0, 1000, 3, 0);
  const Join other{.elements = 8, .state_bytes = 32, .model = "other", .fingerprint = "f"};
  EXPECT_TRUE(sent<proto::Welcome>(join(1, other)));
  EXPECT_EQ(agent_.arena().spec().elements, 8U);
  EXPECT_TRUE(sent<proto::Refused>(join(2)));  // but a living one counts
}

// Behind World 1 there is no other arena, so each result is where it was.
TEST_F(AgentTest, OneArenaHasTheResultsUntilTheEnd) {
  for (MemberId id : {0U, 1U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1}, {0, 0, 1, 1})});
  for (const proto::Step step : {1U, 2U})
    std::ranges::fill(agent_.arena().result(step), std::byte(step));
  const std::byte* const results[] = {agent_.arena().result(1).data(),
                                      agent_.arena().result(2).data()};
  for (MemberId id : {0U, 1U}) (void)agent_.on_reaped(id, 1000, 0, 9);  // nobody is left
  (void)tell(proto::Revoke{1});
  ASSERT_TRUE(sent<proto::Welcome>(join(2)));
  EXPECT_TRUE(sent<proto::Refused>(join(3, {.elements = 8, .state_bytes = 32, .model = "n"})));
  for (const proto::Step step : {1U, 2U}) {
    EXPECT_EQ(agent_.arena().result(step).data(), results[step - 1]);
    EXPECT_EQ(agent_.arena().result(step).front(), std::byte(step));
  }
}

TEST_F(AgentTest, DeathIsToldInTwoStagesInEitherOrderEachOnce) {
  ready(0);
  ready(1);
  auto first = sent<proto::MemberLost>(agent_.on_owner_died(0));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->joined && !first->reaped && !first->finished);
  EXPECT_EQ(member_slot(0).dead.load(), 1U);
  EXPECT_TRUE(agent_.on_owner_died(0).empty());
  auto second = sent<proto::MemberLost>(agent_.on_reaped(0, 4711, 0, 9));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->why, "member 0 (pid 4711): killed by signal 9 (SIGKILL)");
  EXPECT_TRUE(second->reaped);
  EXPECT_EQ(second->signal, 9);
  EXPECT_TRUE(agent_.on_reaped(0, 4711, 0, 9).empty());

  const auto count = member_slot(1).bell.count.load();
  // The pidfd alone does both.
  auto only = sent<proto::MemberLost>(agent_.on_reaped(1, 4712, 0, 0));
  EXPECT_EQ(only->why, "member 1 (pid 4712): exited with status 0 before finish()");
  EXPECT_EQ(member_slot(1).dead.load(), 1U);
  EXPECT_GT(member_slot(1).bell.count.load(), count);
  EXPECT_TRUE(agent_.on_owner_died(1).empty());
}

TEST_F(AgentTest, WhoHangsInTheKernelIsDeadAndKeepsItsSlotUntilItIsReaped) {
  ready(0);
  ready(1);
  const std::string why = "member 0 (pid 4711) was killed, but hangs in the kernel (nfs_wait)";
  auto first = sent<proto::MemberLost>(agent_.on_stuck(0, why));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->why, why);
  EXPECT_TRUE(first->joined && !first->reaped && !first->finished);
  EXPECT_EQ(member_slot(0).dead.load(), 1U);
  EXPECT_EQ(member_slot(0).occupied.load(), 1U);
  EXPECT_TRUE(agent_.on_stuck(0, why).empty());
  EXPECT_TRUE(agent_.on_owner_died(0).empty());
  EXPECT_TRUE(agent_.on_stuck(7, why).empty());
  auto second = sent<proto::MemberLost>(agent_.on_reaped(0, 4711, 0, 9));
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->reaped);
}

// The addresses of a host are sent together, and again when a member changes its own.
TEST_F(AgentTest, AddressesOfAllMembersGoToTheCoordinatorAndChangesToo) {
  for (MemberId id : {0U, 1U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1}, {0, 0, 1, 1})});
  const auto give = [&](MemberId id, std::byte address) {
    return sent<proto::PeerAddresses>(from(id, proto::PeerAddresses{1, {{id, {address}}}}));
  };
  EXPECT_FALSE(give(0, std::byte{10}));
  EXPECT_EQ(give(1, std::byte{11}),
            (proto::PeerAddresses{1, {{0, {std::byte{10}}}, {1, {std::byte{11}}}}}));
  EXPECT_FALSE(give(1, std::byte{11}));
  EXPECT_EQ(give(0, std::byte{20}),
            (proto::PeerAddresses{1, {{0, {std::byte{20}}}, {1, {std::byte{11}}}}}));
}

TEST_F(AgentTest, RevokeClosesTheWordsOfTheLivingAndTheDeadAndReports) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1}, {0, 0, 1, 1})});
  set_state(0, Phase::kOpen, 1, Position::of(1));
  set_state(1, Phase::kCommitted, 1, Position::of(1));
  member_slot(1).seals[3].store(proto::Seal{1, {2, 4}}.pack());
  (void)agent_.on_reaped(1, 1, 1, 0);
  const auto rung = member_slot(0).bell.count.load();
  const auto report = sent<proto::Report>(tell(proto::Revoke{1}));
  ASSERT_TRUE(report);
  EXPECT_GT(member_slot(0).bell.count.load(), rung);
  EXPECT_EQ(report->generation, 1U);
  ASSERT_EQ(report->slots.size(), 3U);
  EXPECT_EQ(report->slots[0].state, (StateWord{Phase::kClosed, false, 1, Position::of(1)}));
  EXPECT_EQ(report->slots[1].state, (StateWord{Phase::kCommitted, true, 1, Position::of(1)}));
  EXPECT_FALSE(report->slots[1].alive);
  EXPECT_EQ(report->slots[1].seals, (std::vector<proto::Seal>{{1, {2, 4}}}));
  EXPECT_EQ(report->slots[2].state, StateWord{});
  EXPECT_EQ(member_slot(2).revoked_up_to.load(), 1U);
}

TEST_F(AgentTest, Fault23_StaleWorldsAndStaleCoordinatorsAreRefused) {
  ready(0);
  (void)tell(proto::Announce{world(2, {0}, {0, 0, 0, 0})}, 3);
  EXPECT_EQ(agent_.arena().newest_world(), 2U);
  EXPECT_THAT(warning(tell(proto::Announce{world(3, {0}, {0, 0, 0, 0})}, 2)),
              HasSubstr("incarnation 2"));
  EXPECT_THAT(warning(tell(proto::Announce{world(2, {0}, {0, 0, 0, 0})}, 3)),
              HasSubstr("refused World 2: "));
  (void)tell(proto::Revoke{4}, 3);
  EXPECT_THAT(warning(tell(proto::Announce{world(4, {0}, {0, 0, 0, 0})}, 3)),
              HasSubstr("4 is revoked"));
  EXPECT_EQ(agent_.arena().newest_world(), 2U);
  EXPECT_TRUE(sent<proto::HelloReply>(tell(proto::Hello{}, 5)));
  EXPECT_EQ(agent_.incarnation(), 5U);
}

// Rule leasetold of tests/model: whatever closed its members, an agent says so to every coordinator
// that asks.
TEST_F(AgentTest, ARevokeIsToldToEveryCoordinatorThatAsks) {
  ready(0);
  (void)tell(proto::Announce{world(2, {0}, {0, 0, 0, 0})});
  (void)tell(proto::Revoke{2});
  for (const proto::Incarnation incarnation : {2U, 3U}) {
    const auto reply = sent<proto::HelloReply>(tell(proto::Hello{}, incarnation));
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->revoked_up_to, 2U);
  }
  // What the one that revoked had sent before, and what it would send now, opens nothing.
  (void)tell(proto::Announce{world(3, {0}, {0, 0, 0, 0})}, 1);
  EXPECT_EQ(agent_.arena().newest_world(), 2U);
  EXPECT_EQ(member_slot(0).revoked_up_to.load(), 2U);
}

TEST_F(AgentTest, ADeadSlotIsKeptAsLongAsItsSumsCount) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1, 2}, {0, 0, 1, 2})});
  set_state(0, Phase::kOpen, 1, Position::of(1));
  member_slot(1).seals[0].store(proto::Seal{1, {2, 3}}.pack());
  (void)agent_.on_reaped(1, 1, 0, 9);
  EXPECT_TRUE(join(3).empty());  // waits: member 1 is in the World
  (void)tell(proto::Revoke{1});
  auto g2 = world(2, {0, 2}, {0, 0, 1, 2});
  // Waits: leaf 2 of step 1 lies there.
  EXPECT_FALSE(sent<proto::Welcome>(tell(proto::Announce{g2})));
  EXPECT_FALSE(sent<proto::Welcome>(tell(proto::Query{})));
  set_state(0, Phase::kCommitted, 2, Position::of(1));
  const auto welcome = sent<proto::Welcome>(tell(proto::Query{}));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->slot, 1);
  EXPECT_EQ(member_slot(1).seals[0].load(), 0U);
}

// Rule reap of tests/model: its other threads may still write into its buffers.
TEST_F(AgentTest, ADeadSlotIsKeptUntilItsMemberIsReaped) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1, 2}, {0, 0, 1, 2})});
  (void)agent_.on_owner_died(1);
  (void)tell(proto::Revoke{1});
  (void)tell(proto::Announce{world(2, {0, 2}, {0, 0, 2, 2})});
  EXPECT_TRUE(join(3).empty());
  const auto welcome = sent<proto::Welcome>(agent_.on_reaped(1, 1, 0, 9));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->slot, 1);
}

// Rule slotuse of tests/model: of the dead member's word resume may depend, though no sum of it
// counts.
TEST_F(AgentTest, ADeadSlotIsKeptWhileItsMemberIsInTheWorld) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1, 2}, {0, 0, 2, 2})});
  set_state(1, Phase::kCommitted, 1, Position::of(1));
  (void)agent_.on_reaped(1, 1, 0, 9);
  EXPECT_TRUE(join(3).empty());
  const auto report = sent<proto::Report>(tell(proto::Revoke{1}));
  EXPECT_EQ(report->slots.at(1).state.position, Position::of(1));
  const auto welcome = sent<proto::Welcome>(tell(proto::Announce{world(2, {0, 2}, {0, 0, 2, 2})}));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->slot, 1);
}

// Rule newslot of tests/model: a member that gets a slot now enters none of the revoked
// generations.
TEST_F(AgentTest, ANewSlotIsClosedForEveryGenerationThatTheAgentKnowsOf) {
  ready(0);
  (void)tell(proto::Announce{world(2, {0}, {0, 0, 0, 0})});
  ready(1);
  EXPECT_EQ(member_slot(1).revoked_up_to.load(), 2U);
  (void)tell(proto::Revoke{5});
  ready(2);
  EXPECT_EQ(member_slot(2).revoked_up_to.load(), 5U);
}

TEST_F(AgentTest, InAnOpenRoundSumsAreGivenUpForAJoinerAndToldSo) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1, 2}, {0, 0, 1, 2})});
  member_slot(1).seals[0].store(proto::Seal{1, {2, 3}}.pack());
  (void)agent_.on_reaped(1, 1, 0, 9);
  (void)tell(proto::Revoke{1});
  (void)tell(proto::Announce{world(2, {0, 2}, {0, 0, 1, 2})});
  (void)tell(proto::Revoke{2});
  const auto effects = join(3);
  ASSERT_TRUE(sent<proto::Welcome>(effects));
  ASSERT_TRUE(sent<proto::Report>(effects));
  EXPECT_EQ(sent<proto::Report>(effects)->generation, 2U);
  // A World that was decided before this report arrived is over before it began.
  const auto late = tell(proto::Announce{world(3, {0, 2}, {0, 0, 1, 2})});
  EXPECT_THAT(warning(late), HasSubstr("partial sums that no longer exist"));
  ASSERT_TRUE(sent<proto::Report>(late));
  EXPECT_EQ(sent<proto::Report>(late)->generation, 3U);
  EXPECT_EQ(member_slot(0).revoked_up_to.load(), 3U);
}

TEST_F(AgentTest, NoticeExclusionAndKill) {
  ready(0);
  (void)tell(proto::Start{.member = 1});
  EXPECT_TRUE(tell(proto::Notice{0}).empty());
  EXPECT_EQ(member_slot(0).leave_request.load(), static_cast<std::uint32_t>(shmem::kAtBoundary));
  EXPECT_EQ(sent<proto::MemberDrained>(from(0, proto::Drained{})), proto::MemberDrained{0});
  EXPECT_EQ(sent<proto::Diverged>(from(0, proto::Diverged{7, "w"})), (proto::Diverged{0, "w"}));
  const auto gently = tell(proto::Kill{0, true, "left on notice"});
  ASSERT_EQ(gently.size(), 2U);  // the reason first, then the arena
  EXPECT_EQ(sent<proto::Excluded>(gently)->reason, "left on notice");
  EXPECT_EQ(member_slot(0).leave_request.load(), static_cast<std::uint32_t>(shmem::kAtBoundary));
  agent_.release(std::get<ReleaseMember>(gently[1]).slot);
  EXPECT_EQ(member_slot(0).leave_request.load(), static_cast<std::uint32_t>(shmem::kNow));
  EXPECT_EQ(std::get<KillMember>(tell(proto::Kill{0, false, ""}).at(0)).member, 0U);
  EXPECT_EQ(std::get<KillMember>(tell(proto::Kill{1, true, ""}).at(0)).member,
            1U);  // it has no ear yet
  (void)agent_.on_reaped(0, 1, 0, 0);
  EXPECT_TRUE(tell(proto::Kill{0, false, ""}).empty());
}

// A member can write anything into its slot; the coordinator would take such a report for
// damage.
TEST_F(AgentTest, SealsOfLeavesThatCannotExistAreNotReported) {
  ready(0);
  const proto::Seal sound{1, {0, 2}};
  member_slot(0).seals[0].store(proto::Seal{1, {3, 2}}.pack());
  member_slot(0).seals[1].store(sound.pack());
  member_slot(0).seals[2].store(proto::Seal{1, {0, proto::kMaxShards + 1}}.pack());
  const auto report = sent<proto::Report>(tell(proto::Query{}));
  ASSERT_EQ(report->slots.size(), 1U);
  EXPECT_EQ(report->slots[0].seals, std::vector<proto::Seal>{sound});
}

TEST_F(AgentTest, TheFirstWordAboutLostCarriersOfTheGenerationIsPassedOnAndToldAgain) {
  for (MemberId id : {0U, 1U}) ready(id);
  (void)tell(proto::Announce{world(1, {0, 1}, {0, 0, 1, 1})});
  const proto::CarrierLost first{1, "first"};
  EXPECT_FALSE(sent<proto::CarrierLost>(from(0, proto::CarrierLost{2, "of no World"})));
  EXPECT_EQ(sent<proto::CarrierLost>(from(1, first)), first);
  EXPECT_FALSE(sent<proto::CarrierLost>(from(0, proto::CarrierLost{1, "second"})));
  EXPECT_EQ(sent<proto::CarrierLost>(tell(proto::Hello{}, 2)), first);
}

TEST_F(AgentTest, HelloTellsEverythingAgain) {
  for (MemberId id : {0U, 1U, 2U}) ready(id);
  (void)tell(proto::Start{.member = 3});
  (void)tell(proto::Announce{world(1, {0, 1}, {0, 0, 1, 1})});
  (void)agent_.on_reaped(1, 7, 3, 0);
  (void)from(0, proto::Drained{});
  const auto effects = tell(proto::Hello{}, 2);
  EXPECT_TRUE(
      std::holds_alternative<proto::MemberDrained>(std::get<ToCoordinator>(effects[0]).body));
  const auto reply = std::get<proto::HelloReply>(std::get<ToCoordinator>(effects[1]).body);
  EXPECT_EQ(reply.world, 1U);
  EXPECT_EQ(reply.revoked_up_to, 0U);
  ASSERT_EQ(reply.slots.size(), 4U);
  EXPECT_EQ(reply.slots[3].slot, proto::kNoSlot);
  EXPECT_EQ(sent<proto::MemberReady>(effects)->join.member, 2U);
  EXPECT_EQ(reply.declared->model, "m");
  EXPECT_EQ(sent<proto::MemberDrained>(effects), proto::MemberDrained{0});
  EXPECT_EQ(sent<proto::MemberLost>(effects)->exit_code, 3);
}

}  // namespace
}  // namespace regroup::membership
