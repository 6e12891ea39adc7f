// NodeTransfer on a real arena, whose members are this test: what a node reports, fetches and
// publishes as source and as target. docs/design/catch_up.md.
#include "membership/agent/node_transfer.h"

#include <gmock/gmock.h>

namespace regroup::membership {
namespace {

using proto::Phase;
using proto::Position;
using proto::Step;
using proto::TransferStep;
using testing::HasSubstr;

constexpr bool kOver = true;

// Member 0 of World 1 trains in slot 0; member 7 in slot 1 learns.
class NodeTransferTest : public testing::Test {
 protected:
  NodeTransferTest() {
    auto arena = shmem::Arena::create(
        {.slots = 2, .shards = 4, .elements = 4, .snapshot_bytes = 64, .kept_results = 2});
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    arena_ = std::move(*arena);
    arena_.assign_slot(0, 0);
    arena_.assign_slot(1, 7);
    world_ = {.generation = 1, .shards = 4, .members = {{.id = 0, .slot_id = {0, 0}}}};
    stands(Phase::kOpen, 5);
  }
  void stands(Phase phase, Step step) {
    arena_.member_slot(0).state.store(proto::StateWord{phase, false, 1, Position::of(step)}.pack());
  }
  AgentEffects start_target(std::vector<proto::SourceAgent> sources) {
    return node_.start_target(
        {.transfer = 1, .step = 7, .members = {7}, .sources = std::move(sources)}, {{7, 1}},
        arena_);
  }
  AgentEffects poll() {
    bool more = false;
    return node_.poll(arena_, world_, &more);
  }
  [[nodiscard]] proto::TransferStep offered() const {
    return TransferStep::unpack(arena_.member_slot(1).transfer.load());
  }
  template <class B>
  static B told(const AgentEffects& effects, std::size_t at = 0) {
    return std::get<B>(std::get<ToCoordinator>(effects.at(at)).body);
  }

  const std::vector<proto::SourceAgent> elsewhere_{{1, "there"}};
  shmem::Arena arena_;
  proto::World world_;
  NodeTransfer node_{0, "here"};
};

TEST_F(NodeTransferTest, ASourceReportsItsStepOrWhyItIsNone) {
  const auto over = node_.start_source({1, 0}, arena_, world_, kOver);
  EXPECT_THAT(told<proto::SourceStatus>(over).why, HasSubstr("generation is over"));
  EXPECT_FALSE(node_.active());
  const auto unmapped = node_.start_source({1, 0}, shmem::Arena(), world_, !kOver);
  EXPECT_THAT(told<proto::SourceStatus>(unmapped).why, HasSubstr("generation is over"));
  const auto begun = node_.start_source({1, 0}, arena_, world_, !kOver);
  EXPECT_EQ(told<proto::SourceStatus>(begun), (proto::SourceStatus{1, 7, "here", ""}));
  EXPECT_TRUE(node_.active());
  EXPECT_TRUE(node_.end(arena_).empty());
  EXPECT_FALSE(node_.active());
}

TEST_F(NodeTransferTest, LearnersOfTheSourcesNodeReadWhatItWrites) {
  (void)node_.start_source({1, 0}, arena_, world_, !kOver);
  EXPECT_TRUE(start_target({{0, "here"}}).empty()) << "nothing is fetched";
  stands(Phase::kCommitted, 7);
  arena_.member_slot(0).donated_step.store(TransferStep{1, 7}.pack());
  (void)poll();
  (void)poll();
  EXPECT_EQ(offered(), (TransferStep{1, 7}));
  arena_.member_slot(0).dead.store(1);
  EXPECT_TRUE(poll().empty()) << "the snapshot is complete";
}

TEST_F(NodeTransferTest, ASourceThatBreaksOffFailsItsOwnLearnersToo) {
  (void)node_.start_source({1, 0}, arena_, world_, !kOver);
  (void)start_target({{0, "here"}});
  arena_.member_slot(0).dead.store(1);
  const auto effects = poll();
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_THAT(told<proto::SourceStatus>(effects, 0).why, HasSubstr("died"));
  EXPECT_EQ(told<proto::TargetStatus>(effects, 1).member, 7U);
  EXPECT_FALSE(node_.active());
}

TEST_F(NodeTransferTest, WhatIsFetchedIsPublishedByPollAndOnlyOnce) {
  const auto effects = start_target(elsewhere_);
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Fetch>(effects[0]));
  EXPECT_TRUE(node_.room_for(9, arena_));
  EXPECT_FALSE(node_.room_for(10, arena_)) << "the ring has two results";
  node_.on_fetched({.snapshot = true, .kept_up_to = 8, .newest = 9});
  EXPECT_NE(arena_.kept_step(8).load(), 8U);
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(arena_.kept_step(8).load(), 8U);
  EXPECT_EQ(offered(), (TransferStep{1, 7}));
  EXPECT_FALSE(node_.stop_idle_fetch());
  node_.forget(7);
  EXPECT_TRUE(node_.stop_idle_fetch()) << "its last learner has gone";
  EXPECT_FALSE(node_.stop_idle_fetch());
}

TEST_F(NodeTransferTest, AFetchThatFailsIsReportedForItsLearnersAndNotStopped) {
  (void)start_target(elsewhere_);
  const auto effects = node_.on_fetch_failed(arena_, "gone");
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_EQ(told<proto::TargetStatus>(effects), (proto::TargetStatus{1, 7, 0, "gone"}));
  EXPECT_FALSE(node_.stop_idle_fetch());
}

TEST_F(NodeTransferTest, ANewSourceTakesTheSnapshotFromAFetch) {
  (void)start_target(elsewhere_);
  const auto effects = node_.start_source({2, 0}, arena_, world_, !kOver);
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<StopFetch>(effects[0])) << "before the answer";
  EXPECT_EQ(told<proto::SourceStatus>(effects, 1).step, 7U);
}

TEST_F(NodeTransferTest, AWorldWhoseDonorsNeedTheSnapshotEndsAFetch) {
  (void)start_target(elsewhere_);
  world_.generation = 2;
  EXPECT_TRUE(node_.on_world(arena_, world_).empty());
  world_.members.push_back({.id = 9, .slot_id = {0, 1}, .needs_state = true});
  const auto effects = node_.on_world(arena_, world_);
  ASSERT_EQ(effects.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<StopFetch>(effects[0]));
  EXPECT_THAT(told<proto::TargetStatus>(effects, 1).why, HasSubstr("does not learn"));
}

TEST_F(NodeTransferTest, ReadersOnOtherNodesKeepResultsInTheRing) {
  (void)node_.start_source({1, 0}, arena_, world_, !kOver);
  arena_.member_slot(0).donated_step.store(TransferStep{1, 7}.pack());
  node_.on_reader_progress(3, TransferTarget::Received{true, 7, 7});
  for (const Step step : {8, 9, 10}) {
    stands(Phase::kCommitted, step);
    for (bool more = true; more;) (void)node_.poll(arena_, world_, &more);
  }
  EXPECT_EQ(node_.source().kept_up_to(), 9U);
  node_.on_reader_progress(3, TransferTarget::Received{true, 8, 10});
  for (bool more = true; more;) (void)node_.poll(arena_, world_, &more);
  EXPECT_EQ(node_.source().kept_up_to(), 10U);
}

TEST_F(NodeTransferTest, ANodeThatCannotFetchSaysSoAtOnce) {
  for (const auto& sources : {std::vector<proto::SourceAgent>{}, {{0, "here"}}}) {
    const auto effects = start_target(sources);
    ASSERT_EQ(effects.size(), 1U);
    EXPECT_THAT(told<proto::TargetStatus>(effects).why, HasSubstr("cannot fetch"));
  }
  arena_.member_slot(0).using_snapshot.store(1);
  EXPECT_THAT(told<proto::TargetStatus>(start_target(elsewhere_)).why, HasSubstr("in use"));
}

}  // namespace
}  // namespace regroup::membership
