// LocalMembers on an arena of its own: a member goes from started to reaped, and its loss is read
// from its slot once.
#include "membership/agent/local_members.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using Life = LocalMember::Life;

class LocalMembersTest : public testing::Test {
 protected:
  LocalMembersTest() {
    auto arena = shmem::Arena::create({.slots = 2, .elements = 4});
    EXPECT_TRUE(arena.ok()) << arena.status().to_string();
    arena_ = std::move(*arena);
  }
  LocalMember& in_slot(proto::MemberId id, proto::SlotIndex slot) {
    members_.add(id);
    arena_.assign_slot(slot, id);
    members_.find(id)->slot = slot;
    return *members_.find(id);
  }

  shmem::Arena arena_;
  LocalMembers members_;
};

TEST_F(LocalMembersTest, ADeathIsReadFromTheSlotAndMarkedThereOnce) {
  in_slot(3, 0);
  LocalMember& member = in_slot(7, 1);
  member.life = Life::kReady;
  shmem::MemberSlot& words = arena_.member_slot(1);
  words.step.store(9);
  words.loss.store(0.25);
  words.finished.store(1);
  const auto rung = arena_.member_slot(0).bell.count.load();
  ASSERT_TRUE(members_.mark_dead(7, arena_));
  EXPECT_TRUE(member.is_dead() && !member.is_ready() && !member.is_reaped());
  EXPECT_TRUE(member.loss.joined && member.loss.finished && !member.loss.reaped);
  EXPECT_EQ(member.loss.member, 7U);
  EXPECT_EQ(member.loss.step, 9U);
  EXPECT_EQ(member.loss.loss, 0.25);
  EXPECT_EQ(words.dead.load(), 1U);
  EXPECT_GT(arena_.member_slot(0).bell.count.load(), rung) << "nobody needs to wait for it";
  words.step.store(10);
  EXPECT_FALSE(members_.mark_dead(7, arena_));
  EXPECT_EQ(member.loss.step, 9U);
}

TEST_F(LocalMembersTest, WhatWasReadyWhenItDiedStillCountsWhenItIsReaped) {
  in_slot(7, 0).life = Life::kReady;
  in_slot(8, 1);
  ASSERT_TRUE(members_.mark_dead(7, arena_));
  const LocalMember* ready = members_.mark_reaped(7, 3, 0, arena_);
  ASSERT_NE(ready, nullptr);
  EXPECT_TRUE(ready->loss.joined && ready->loss.reaped);
  EXPECT_EQ(ready->loss.loss, std::nullopt);  // it has recorded none
  EXPECT_EQ(ready->loss.exit_code, 3);
  EXPECT_EQ(members_.mark_reaped(7, 4, 0, arena_), nullptr);
  EXPECT_EQ(ready->loss.exit_code, 3);
  const LocalMember* started = members_.mark_reaped(8, 0, 9, arena_);
  ASSERT_NE(started, nullptr);
  EXPECT_FALSE(started->loss.joined);
  EXPECT_EQ(started->loss.signal, 9);
  EXPECT_EQ(arena_.member_slot(1).dead.load(), 1U);
}

TEST_F(LocalMembersTest, AProcessThatNobodyStartedOrThatNeverJoinedHasALossWithoutASlot) {
  const LocalMember* unknown = members_.mark_reaped(5, 127, 0, shmem::Arena());
  ASSERT_NE(unknown, nullptr);
  EXPECT_EQ(unknown->loss.member, 5U);
  EXPECT_FALSE(unknown->loss.joined);
  EXPECT_EQ(members_.find(5), unknown);
  EXPECT_EQ(members_.find(6), nullptr);
}

TEST_F(LocalMembersTest, SlotsAreDroppedOnceNoLivingProcessHasOne) {
  EXPECT_TRUE(members_.none_holds_a_slot());
  in_slot(1, 0);
  members_.add(2);
  members_.add(1);  // known: nothing changes
  EXPECT_FALSE(members_.none_holds_a_slot());
  ASSERT_TRUE(members_.mark_dead(1, arena_));
  EXPECT_FALSE(members_.none_holds_a_slot()) << "its process may still write";
  ASSERT_NE(members_.mark_reaped(1, 0, 9, arena_), nullptr);
  EXPECT_TRUE(members_.none_holds_a_slot());
  members_.drop_slots();
  EXPECT_FALSE(members_.find(1)->slot);
}

}  // namespace
}  // namespace regroup::membership
