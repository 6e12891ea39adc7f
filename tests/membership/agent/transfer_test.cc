// TransferSource and TransferTarget on a real arena, whose members are this test, and an agent that
// has both. docs/design/catch_up.md.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/crc32c.h"
#include "membership/agent/agent_core.h"
#include "membership/agent/transfer_source.h"
#include "membership/agent/transfer_target.h"

namespace regroup::membership {
namespace {

using proto::Phase;
using proto::Position;
using proto::Step;
using proto::TransferStep;
using testing::HasSubstr;

constexpr Step kNothingConsumed = 0;

class TransferTest : public testing::Test {
 protected:
  TransferTest() {
    auto arena = shmem::Arena::create({.slots = 3,
                                       .shards = 4,
                                       .elements = 3 * shmem::kSnapshotChunk / 4,
                                       .snapshot_bytes = 64,
                                       .kept_results = 2});
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    arena_ = std::move(*arena);
    world_ = {.incarnation = 1, .generation = 1, .shards = 4};
    for (proto::SlotIndex slot = 0; slot < 2; ++slot) {
      arena_.assign_slot(slot, slot);
      world_.members.push_back({.id = slot, .slot_id = {0, slot}});
    }
    arena_.assign_slot(2, 7);  // the learner
  }

  void stands(Phase phase, Step step) {
    for (proto::SlotIndex slot = 0; slot < 2; ++slot)
      arena_.member_slot(slot).state.store(
          proto::StateWord{phase, false, 1, Position::of(step)}.pack());
  }
  // Members commit `step` with a result of that many in each byte.
  void commit(Step step) {
    std::ranges::fill(arena_.result(step), static_cast<std::byte>(step));
    stands(Phase::kCommitted, step);
  }
  void write_snapshot(TransferStep mark) {
    for (proto::SlotIndex slot = 0; slot < 2; ++slot)
      arena_.member_slot(slot).donated_step.store(mark.pack());
  }
  void poll(Step consumed = kNothingConsumed) {
    while (source_.poll(arena_, consumed)) {
    }
  }
  TransferStep begun() {
    stands(Phase::kOpen, 5);
    const auto step = source_.begin(arena_, {1, 0}, world_);
    EXPECT_TRUE(step.ok()) << step.status().to_string();
    return source_.base();
  }
  bool sound(Step step) {
    const auto bytes = arena_.kept_result(step);
    return std::ranges::all_of(bytes,
                               [&](std::byte b) { return b == static_cast<std::byte>(step); }) &&
           arena_.kept_crcs(step)[0] ==
               base::crc32c(bytes.first(shmem::kSnapshotChunk), proto::result_salt(step));
  }

  shmem::Arena arena_;
  proto::World world_;
  TransferSource source_;
  TransferTarget target_;
};

// No step of a World commits without the votes of all its members, so each has the state, also a
// newcomer.
TEST_F(TransferTest, AllOfTheWorldWriteAndNoStepThatItResumesFrom) {
  world_.resume = Position::of(5);
  world_.members[1].needs_state = true;
  EXPECT_FALSE(source_.begin(arena_, {1, 5}, world_).ok());
  EXPECT_EQ(arena_.snapshot_at().load(), 0U);
  const auto step = source_.begin(arena_, {2, 0}, world_);  // nobody has entered it yet
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(*step, 7U);
  arena_.member_slot(0).donated_step.store(source_.base().pack());
  poll();
  EXPECT_FALSE(source_.snapshot_complete());
  arena_.member_slot(1).donated_step.store(source_.base().pack());
  poll();
  EXPECT_TRUE(source_.snapshot_complete());
}

TEST_F(TransferTest, TheStepIsOneThatNobodyCanHavePassed) {
  EXPECT_EQ(begun().step, 7U);
  EXPECT_EQ(TransferStep::unpack(arena_.snapshot_at().load()), (TransferStep{1, 7}));
}

TEST_F(TransferTest, AStepThatSomebodyHasOpenedIsTooLate) {
  stands(Phase::kOpen, 5);
  EXPECT_THAT(source_.begin(arena_, {1, 5}, world_).status().message(),
              HasSubstr("passed already"));
  EXPECT_EQ(arena_.snapshot_at().load(), 0U);
  EXPECT_FALSE(source_.active());
}

TEST_F(TransferTest, ResultsAreKeptOnceTheyAreCommitted) {
  const TransferStep mark = begun();
  commit(7);
  write_snapshot(mark);
  stands(Phase::kOpen, 8);
  poll();
  EXPECT_TRUE(source_.snapshot_complete());
  EXPECT_EQ(source_.kept_up_to(), 7U);
  commit(8);
  poll();
  EXPECT_EQ(source_.kept_up_to(), 8U);
  EXPECT_EQ(arena_.kept_step(8).load(), 8U);
  EXPECT_TRUE(sound(8));
}

TEST_F(TransferTest, AFullRingWaitsForTheLearnersAndThenBreaksOff) {
  write_snapshot(begun());
  for (const Step step : {8, 9, 10}) {
    commit(step);
    poll();
  }
  EXPECT_EQ(source_.kept_up_to(), 9U);
  EXPECT_TRUE(sound(8));
  EXPECT_TRUE(source_.active());
  poll(8);  // somebody has applied it
  EXPECT_EQ(source_.kept_up_to(), 10U);
  commit(11);
  poll(8);
  stands(Phase::kOpen, 13);  // its result comes to lie where that of 11 was
  poll(8);
  EXPECT_THAT(source_.broken(), HasSubstr("slower than the steps"));
}

TEST_F(TransferTest, AResultThatIsOverwrittenIsNotKept) {
  write_snapshot(begun());
  commit(8);
  stands(Phase::kOpen, 10);
  poll();
  EXPECT_THAT(source_.broken(), HasSubstr("result of step 8 was overwritten"));
  EXPECT_NE(arena_.kept_step(8).load(), 8U);
}

TEST_F(TransferTest, AMemberThatDiesBeforeItWroteItsPartEndsTheTransfer) {
  (void)begun();
  arena_.member_slot(1).dead.store(1);
  poll();
  EXPECT_THAT(source_.broken(), HasSubstr("died"));
  EXPECT_EQ(arena_.snapshot_at().load(), 0U);
}

TEST_F(TransferTest, AWorldWithDonorsTakesTheSnapshotUnlessAllHaveReadIt) {
  write_snapshot(begun());
  commit(7);
  poll();
  proto::World next = world_;
  next.generation = 2;
  source_.on_world(arena_, next, false);
  EXPECT_TRUE(source_.active());
  next.members.push_back({.id = 9, .slot_id = {0, 2}, .needs_state = true});
  source_.on_world(arena_, next, true);
  EXPECT_TRUE(source_.active());
  source_.on_world(arena_, next, false);
  EXPECT_THAT(source_.broken(), HasSubstr("does not learn"));
}

TEST_F(TransferTest, ALearnerIsToldOfTheSnapshotAndCatchesUpOnce) {
  const TransferStep mark{1, 7};
  shmem::MemberSlot& member_slot = arena_.member_slot(2);
  target_.begin(mark, {{7, 2}});
  EXPECT_TRUE(target_.poll(arena_, {false, 7, 7}, world_).empty());
  EXPECT_EQ(member_slot.transfer.load(), 0U);
  EXPECT_TRUE(target_.poll(arena_, {true, 7, 7}, world_).empty());
  EXPECT_EQ(member_slot.transfer.load(), mark.pack());
  EXPECT_FALSE(target_.read());

  member_slot.replayed.store(mark.pack());
  EXPECT_TRUE(target_.poll(arena_, {true, 8, 8}, world_).empty()) << "result 8 is not applied";
  EXPECT_TRUE(target_.read());
  EXPECT_EQ(target_.consumed(), 7U);
  member_slot.replayed.store(TransferStep{1, 8}.pack());
  EXPECT_TRUE(target_.poll(arena_, {true, 8, 12}, world_).empty()) << "more are on their way";
  const auto news = target_.poll(arena_, {true, 8, 8}, world_);
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0], (proto::TargetStatus{1, 7, 8, ""}));
  EXPECT_EQ(target_.may_have(7), 8U);
  EXPECT_TRUE(target_.poll(arena_, {true, 8, 8}, world_).empty()) << "it is said once";
}

TEST_F(TransferTest, DamageIsToldAndTheOthersGoOn) {
  arena_.assign_slot(1, 8);
  target_.begin({1, 7}, {{7, 2}, {8, 1}});
  (void)target_.poll(arena_, {true, 7, 7}, world_);
  arena_.member_slot(2).replayed.store(TransferStep{1, 0}.pack());
  const auto news = target_.poll(arena_, {true, 7, 7}, world_);
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0].member, 7U);
  EXPECT_THAT(news[0].why, HasSubstr("CRC32C"));
  EXPECT_TRUE(target_.active());
  EXPECT_EQ(arena_.member_slot(2).transfer.load(), 0U);
}

TEST_F(TransferTest, WhatIsBrokenOffIsToldOfThoseThatLackTheState) {
  target_.begin({1, 7}, {{7, 2}});
  (void)target_.poll(arena_, {true, 7, 7}, world_);
  const auto news = target_.break_off(arena_, "why");
  ASSERT_EQ(news.size(), 1U);
  EXPECT_EQ(news[0], (proto::TargetStatus{1, 7, 0, "why"}));
  EXPECT_EQ(arena_.member_slot(2).transfer.load(), 0U);
  EXPECT_FALSE(target_.active());
}

// Member 0 trains, 1 learns from it: it has the result of step 8 and has said so.
class TransferOfAgentTest : public testing::Test {
 protected:
  TransferOfAgentTest() {
    for (const proto::MemberId id : {0U, 1U}) {
      (void)tell(proto::Start{.member = id});
      (void)agent_.handle(
          {id}, {0, proto::Join{.member = id, .elements = 4, .state_bytes = 64, .model = "m"}});
      (void)agent_.handle({id}, {0, proto::Ready{}});
      if (id == 0) (void)tell(proto::Announce{world(1)});
    }
    stands(Phase::kOpen, 5);
    (void)tell(proto::StartSource{1, 0});
    (void)tell(proto::StartTarget{.transfer = 1, .step = 7, .members = {1}, .sources = {{0, ""}}});
    stands(Phase::kCommitted, 7);
    member_slot(0).donated_step.store(TransferStep{1, 7}.pack());
    poll();
    stands(Phase::kCommitted, 8);
    poll();
    member_slot(1).replayed.store(TransferStep{1, 8}.pack());
    poll();
  }
  AgentEffects tell(proto::Body body) { return agent_.handle({}, {1, std::move(body)}); }
  void poll() {
    for (bool more = true; more;) (void)agent_.poll_transfer(&more);
  }
  shmem::MemberSlot& member_slot(proto::SlotIndex slot) { return agent_.arena().member_slot(slot); }
  void stands(Phase phase, Step step) {
    member_slot(0).state.store(proto::StateWord{phase, false, 1, Position::of(step)}.pack());
  }
  static proto::World world(proto::Generation g) {
    proto::World w{
        .incarnation = 1, .generation = g, .shards = 4, .members = {{.id = 0, .slot_id = {0, 0}}}};
    w.plan.assign(4, {0, 0});
    return w;
  }
  static proto::Step caught_up_to(const AgentEffects& effects) {
    return std::get<proto::Report>(std::get<ToCoordinator>(effects.at(0)).body)
        .slots.at(1)
        .caught_up_to;
  }

  AgentCore agent_{{.slots = 3, .shards = 4, .kept_results = 4}};
};

// Rule learnstop of tests/model: what it says it has is what it enters the next World with.
TEST_F(TransferOfAgentTest, ALearnerGetsNothingBehindWhatTheReportSaysOfIt) {
  EXPECT_EQ(agent_.arena().kept_step(8).load(), 8U);
  const auto report = tell(proto::Revoke{1});
  EXPECT_EQ(caught_up_to(report), 8U);
  stands(Phase::kCommitted, 9);  // as a late word says it
  poll();
  EXPECT_NE(agent_.arena().kept_step(9).load(), 9U);
  EXPECT_EQ(caught_up_to(tell(proto::Revoke{1})), 8U);
  (void)tell(proto::Announce{world(2)});
  poll();
  EXPECT_EQ(agent_.arena().kept_step(9).load(), 9U) << "the transfer goes on with the next World";
}

}  // namespace
}  // namespace regroup::membership
