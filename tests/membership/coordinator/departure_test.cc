// Which members leave a job that goes on, and when.
#include "membership/coordinator/departure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Departure : public testing::Test {
 protected:
  MemberInfo& add(MemberState state) {
    const proto::MemberId id = members_.next_id();
    MemberInfo& r = members_.add(id, 0, {});
    r.state = state;
    if (state == MemberState::kActive) r.rank = static_cast<int>(id);
    return r;
  }
  // Asks member 0 to leave.
  Leave leave() {
    members_.edit(0)->leave_wanted = true;
    return how_to_leave(*members_.find(0), members_, terms_);
  }
  MemberTable members_;
  LeaveTerms terms_{.min = 2, .room_for_successor = true, .successor_may_start = true};
};

TEST_F(Departure, OutsideTheWorldAMemberIsDismissed) {
  add(MemberState::kWarm);
  EXPECT_EQ(leave(), Leave::kDismiss);
}

TEST_F(Departure, AMemberThatCanBeSparedGetsItsNotice) {
  for (int i = 0; i < 3; ++i) add(MemberState::kActive);
  EXPECT_EQ(leave(), Leave::kNotice);
}

TEST_F(Departure, BelowTheMinimumItWaitsForItsSuccessor) {
  for (int i = 0; i < 2; ++i) add(MemberState::kActive);
  EXPECT_EQ(leave(), Leave::kWait);
  terms_.room_for_successor = false;
  EXPECT_EQ(leave(), Leave::kNotice) << "it makes the room";
  terms_.room_for_successor = true;
  members_.edit(0)->drained = true;
  EXPECT_EQ(leave(), Leave::kDrained) << "it holds the others up";
}

TEST_F(Departure, TheLastMemberWithTheStateStaysUntilAnotherHasIt) {
  for (int i = 0; i < 3; ++i) add(MemberState::kActive);
  for (const proto::MemberId id : {1, 2}) members_.edit(id)->entry.needs_state = true;
  members_.edit(0)->drained = true;
  EXPECT_EQ(leave(), Leave::kWait);
  members_.edit(1)->proved = true;
  EXPECT_EQ(leave(), Leave::kDrained);
}

TEST_F(Departure, TheLastMemberWithTheStateLeavesIfNoOtherCanCome) {
  add(MemberState::kActive);
  terms_ = {.min = 1};
  EXPECT_EQ(leave(), Leave::kNotice);
  add(MemberState::kStarting);
  EXPECT_EQ(leave(), Leave::kWait);
}

TEST_F(Departure, NewestOutsideTheWorldLeaveFirstAndThenTheHighestRanks) {
  for (int i = 0; i < 3; ++i) add(MemberState::kActive);    // 0 to 2
  for (int i = 0; i < 2; ++i) add(MemberState::kWarm);      // 3 and 4
  for (int i = 0; i < 2; ++i) add(MemberState::kStarting);  // 5 and 6
  EXPECT_THAT(surplus(members_, 7, 0), IsEmpty());
  EXPECT_THAT(surplus(members_, 6, 0), ElementsAre(6));
  EXPECT_THAT(surplus(members_, 4, 0), ElementsAre(6, 5, 4));
  EXPECT_THAT(surplus(members_, 1, 0), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(surplus(members_, 2, 1), ElementsAre(6, 5, 4, 2)) << "a spare stays warm";
}

TEST_F(Departure, MembersBeyondTheSlotsOfTheirHostLeaveTheNewestOnes) {
  for (int i = 0; i < 4; ++i) add(MemberState::kActive);
  add(MemberState::kWarm);
  EXPECT_THAT(beyond_slots(members_, 0, 5), IsEmpty());
  EXPECT_THAT(beyond_slots(members_, 0, 2), ElementsAre(2, 3, 4));
  members_.edit(3)->state = MemberState::kDraining;
  members_.edit(4)->leave_wanted = true;
  EXPECT_THAT(beyond_slots(members_, 0, 2), ElementsAre(2)) << "the others leave already";
  members_.edit(0)->state = MemberState::kLost;
  EXPECT_THAT(beyond_slots(members_, 0, 2), IsEmpty()) << "a dead one uses no slot";
  EXPECT_THAT(beyond_slots(members_, 1, 0), IsEmpty());
}

TEST_F(Departure, AMemberThatLeavesAlreadyIsNotCounted) {
  for (int i = 0; i < 3; ++i) add(MemberState::kActive);
  members_.edit(2)->leave_wanted = true;
  EXPECT_THAT(surplus(members_, 2, 0), IsEmpty());
  EXPECT_THAT(surplus(members_, 1, 0), ElementsAre(1));
}

}  // namespace
}  // namespace regroup::membership
