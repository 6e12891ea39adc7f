// Which slots may be reassigned, as a function of the arena, the members and the World.
#include "membership/agent/slot_use.h"

#include <gtest/gtest.h>

#include "shmem/generation_fence.h"

namespace regroup::membership {
namespace {

using proto::Position;

// Three slots of members 0, 1, 2 on node 0, which are World 1 after step 4; each computes a leaf or
// two of step 5.
class SlotUseTest : public testing::Test {
 protected:
  SlotUseTest() {
    auto arena = shmem::Arena::create({.slots = 3, .shards = 4, .elements = 4});
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    arena_ = std::move(*arena);
    world_ = {.generation = 1, .resume = Position::of(4), .shards = 4};
    for (proto::SlotIndex slot = 0; slot < 3; ++slot) {
      members_.add(slot);
      arena_.assign_slot(slot, slot);
      members_.find(slot)->slot = slot;
      members_.find(slot)->life = LocalMember::Life::kReady;
      world_.members.push_back({.id = slot, .slot_id = {0, slot}});
    }
    world_.plan = {{0, 0}, {0, 0}, {0, 1}, {0, 2}};
  }
  void reap(proto::MemberId id) { (void)members_.mark_reaped(id, 0, 9, arena_); }
  // The next World, without member 1.
  void leave_out_member_1() {
    world_.generation = 2;
    world_.members.erase(world_.members.begin() + 1);
  }
  void seal(proto::SlotIndex slot, proto::Seal what) {
    arena_.member_slot(slot).seals[0].store(what.pack());
  }
  [[nodiscard]] SlotUse use(proto::SlotIndex slot, bool awaits_world = false,
                            proto::Step committed = 4) const {
    return use_of({arena_, members_, world_, awaits_world, committed}, slot);
  }
  [[nodiscard]] SlotChoice choose(bool awaits_world = false, proto::Step committed = 4) const {
    return choose_slot({arena_, members_, world_, awaits_world, committed});
  }

  shmem::Arena arena_;
  LocalMembers members_;
  proto::World world_;
};

TEST_F(SlotUseTest, ALivingMemberKeepsItsSlotAndADeadOneUntilItIsReaped) {
  EXPECT_EQ(use(1), SlotUse::kTaken);
  EXPECT_FALSE(choose().slot);
  EXPECT_FALSE(choose().worth_wait);
  ASSERT_TRUE(members_.mark_dead(1, arena_));
  leave_out_member_1();
  world_.plan = {{0, 0}, {0, 0}, {0, 2}, {0, 2}};
  EXPECT_EQ(use(1), SlotUse::kNeeded);
  EXPECT_TRUE(choose().worth_wait);
  reap(1);
  EXPECT_EQ(use(1), SlotUse::kFree);
  EXPECT_EQ(choose().slot, 1U);
  EXPECT_FALSE(choose().voids);
}

TEST_F(SlotUseTest, AMemberOfTheWorldKeepsItsSlotBeyondItsEnd) {
  reap(1);
  EXPECT_EQ(use(1), SlotUse::kNeeded);
  EXPECT_EQ(use(1, true), SlotUse::kNeeded) << "its word says what is committed";
}

TEST_F(SlotUseTest, SumsOfThePlanAreKeptUntilTheirStepIsCommitted) {
  reap(1);
  leave_out_member_1();
  EXPECT_EQ(use(1), SlotUse::kNeeded);
  EXPECT_EQ(use(1, false, 5), SlotUse::kFree);
}

TEST_F(SlotUseTest, WhileARegroupIsInProgressSumsAreVoidedIfNoSlotIsFree) {
  reap(1);
  leave_out_member_1();
  EXPECT_EQ(use(1, true), SlotUse::kVoidable) << "the plan has a leaf there";
  world_.plan = {{0, 0}, {0, 0}, {0, 2}, {0, 2}};
  EXPECT_EQ(use(1, true), SlotUse::kFree);
  seal(1, {5, {2, 3}});
  EXPECT_EQ(use(1, true), SlotUse::kVoidable) << "the next plan could use it";
  EXPECT_EQ(use(1, true, 5), SlotUse::kFree);
  EXPECT_EQ(choose(true).slot, 1U);
  EXPECT_TRUE(choose(true).voids);
  arena_.member_slot(2).occupied.store(0);
  EXPECT_EQ(choose(true).slot, 2U) << "a free slot goes first";
  EXPECT_FALSE(choose(true).voids);
}

TEST_F(SlotUseTest, APlanHoldsIfTheSumsOfSlotsOutsideTheWorldAreSealed) {
  EXPECT_TRUE(holds_plan(arena_, world_, true));
  leave_out_member_1();
  EXPECT_FALSE(holds_plan(arena_, world_, true));
  seal(1, {4, {2, 3}});
  EXPECT_FALSE(holds_plan(arena_, world_, true)) << "of the step before";
  seal(1, {5, {2, 3}});
  EXPECT_TRUE(holds_plan(arena_, world_, true));
  world_.plan[0] = {0, 7};
  EXPECT_FALSE(holds_plan(arena_, world_, true)) << "no such slot";
  world_.plan[0] = {1, 7};
  EXPECT_TRUE(holds_plan(arena_, world_, true)) << "another node's";
}

TEST_F(SlotUseTest, SumsOnTheGpuAreKeptUntilNobodyOfTheWorldMayMoveThem) {
  reap(1);
  leave_out_member_1();
  seal(1, {5, {2, 3}});
  arena_.member_slot(1).on_device.store(1);
  for (const proto::SlotIndex slot : {0U, 2U})
    shmem::hold_fence<shmem::RealPolicy>(arena_.member_slot(slot).left_generation, 2);
  EXPECT_EQ(use(1, true), SlotUse::kNeeded) << "both may be moving them to the arena";
  shmem::leave_generation<shmem::RealPolicy>(arena_.member_slot(0).left_generation, 2);
  EXPECT_EQ(use(1, true), SlotUse::kNeeded);
  EXPECT_TRUE(choose(true).worth_wait);
  shmem::leave_generation<shmem::RealPolicy>(arena_.member_slot(2).left_generation, 2);
  EXPECT_EQ(use(1, true), SlotUse::kVoidable);
}

TEST_F(SlotUseTest, SumsOfADeadMemberOnTheGpuCountOnlyIfAMemberCanReadThem) {
  const NodeTransfer none(0, "");
  seal(1, {5, {2, 3}});
  arena_.member_slot(1).on_device.store(1);
  const auto seals = [&](bool gpu_sums) { return report_slots(arena_, none, gpu_sums)[1].seals; };
  EXPECT_EQ(seals(false).size(), 1U) << "its living owner moves them";
  reap(1);
  leave_out_member_1();
  EXPECT_EQ(seals(true).size(), 1U);
  EXPECT_EQ(seals(false).size(), 0U);
  EXPECT_TRUE(holds_plan(arena_, world_, true));
  EXPECT_FALSE(holds_plan(arena_, world_, false));
  arena_.member_slot(1).on_device.store(2);  // another buffer
  EXPECT_TRUE(holds_plan(arena_, world_, false));
}

TEST_F(SlotUseTest, SlotsWithoutAnOwnerAreNotReported) {
  const NodeTransfer none(0, "");
  EXPECT_TRUE(report_slots(shmem::Arena(), none, true).empty());
  arena_.member_slot(1).occupied.store(0);
  seal(2, {5, {2, 3}});
  const auto reports = report_slots(arena_, none, true);
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].member, 0U);
  EXPECT_EQ(reports[1].slot, 2U);
  EXPECT_EQ(reports[1].seals, (std::vector<proto::Seal>{{5, {2, 3}}}));
}

}  // namespace
}  // namespace regroup::membership
