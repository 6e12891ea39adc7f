// What agents tell a restarted coordinator, and what is left of its predecessor's launch.
#include "membership/coordinator/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "membership/coordinator/launch_until_join.h"

namespace regroup::membership {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Found = LaunchUntilJoin::Found;

constexpr base::TimePoint kRestart{std::chrono::seconds(1000)};

TEST(RecoveryFromHello, AgreesWhileAllAgentsKnowTheJournaledWorldUnrevoked) {
  const proto::World journaled{.generation = 4};
  Recovery recovery;
  EXPECT_TRUE(recovery.agreed());
  recovery.add({.world = 4, .revoked_up_to = 3}, journaled);
  EXPECT_TRUE(recovery.agreed());
  EXPECT_EQ(recovery.highest(), 4U);
  recovery.add({.world = 4, .revoked_up_to = 4}, journaled);
  EXPECT_FALSE(recovery.agreed()) << "it has revoked the World";
  recovery.add({.world = 4, .revoked_up_to = 3}, journaled);
  EXPECT_FALSE(recovery.agreed()) << "one is enough";
}

TEST(RecoveryFromHello, AnAgentMayKnowAWorldThatTheJournalHasLost) {
  const proto::World journaled{.generation = 4};
  Recovery recovery;
  recovery.add({.world = 6, .revoked_up_to = 2}, journaled);
  EXPECT_FALSE(recovery.agreed());
  recovery.add({.world = 3, .revoked_up_to = 5}, journaled);
  EXPECT_EQ(recovery.highest(), 6U);
}

TEST(RecoveryFromHello, AMemberOfTheWorldWhoseSlotIsReassignedIsNotReported) {
  MemberTable members;
  for (const proto::MemberId id : {0, 1, 2}) {
    MemberInfo& r = members.add(id, id == 2 ? 8 : 7, kRestart);
    r.rank = static_cast<int>(id);
  }
  members.add(3, 7, kRestart);  // in no World
  EXPECT_THAT(unreported_members(members, 7, {{.member = 0}, {.member = 1}}), IsEmpty());
  EXPECT_THAT(unreported_members(members, 7, {{.member = 0}, {.member = 5}}), ElementsAre(1));
  EXPECT_THAT(unreported_members(members, 8, {}), ElementsAre(2));
}

// A launch whose first member has the id 2.
class LaunchFound : public testing::Test {
 protected:
  LaunchFound() { launch_.restore({.restarts = 1, .first_member = 2}); }
  void add(proto::MemberId id) { members_.add(id, 0, kRestart); }

  LaunchUntilJoin launch_{RelaunchPolicy{}, 1, 3};
  MemberTable members_;
};

TEST_F(LaunchFound, NoneWhereOnlyMembersOfEarlierLaunchesAreKnown) {
  add(0);
  EXPECT_EQ(launch_.find(kRestart, members_, false), Found::kNone);
  EXPECT_FALSE(launch_.made());
}

TEST_F(LaunchFound, ARunningOneIsContinued) {
  for (const proto::MemberId id : {2, 3, 4}) add(id);
  EXPECT_EQ(launch_.find(kRestart, members_, false), Found::kRuns);
  EXPECT_TRUE(launch_.made());
}

TEST_F(LaunchFound, OneWithoutSomeOfItsMembersIsMadeAgainUnlessOneHasJoined) {
  members_.reserve_ids(5);  // the predecessor had journaled that it starts three
  for (const proto::MemberId id : {2, 3}) add(id);
  EXPECT_EQ(launch_.find(kRestart, members_, true), Found::kRuns);
  EXPECT_EQ(launch_.find(kRestart, members_, false), Found::kInterrupted);
  EXPECT_EQ(launch_.due(), kRestart);
}

}  // namespace
}  // namespace regroup::membership
