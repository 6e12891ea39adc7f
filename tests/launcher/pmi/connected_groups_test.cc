// Which spaces fail together.
#include "launcher/pmi/connected_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

using testing::ElementsAre;
using Spaces = ConnectedGroups::Spaces;

// Reports of the only host of a job, which runs ranks of all spaces.
void connect(ConnectedGroups& groups, const Spaces& spaces) { groups.connect(0, spaces, spaces); }
void disconnect(ConnectedGroups& groups, const Spaces& spaces) { groups.disconnect(0, spaces); }

TEST(ConnectedGroups, ASpawnJoinsUntilItsDisconnect) {
  ConnectedGroups groups;
  groups.spawned(0, 1);
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1));
  connect(groups, {0, 1});
  EXPECT_THAT(groups.group_of(1), ElementsAre(0, 1));
  disconnect(groups, {0, 1});
  EXPECT_THAT(groups.group_of(1), ElementsAre(1));
  connect(groups, {0, 1});  // MPI_Comm_connect
  EXPECT_THAT(groups.group_of(1), ElementsAre(0, 1));
}

TEST(ConnectedGroups, TheLaunchersHostDisconnectsASpawnWithoutAReportedConnection) {
  ConnectedGroups groups;
  groups.spawned(0, 1);
  groups.disconnect(2, {0, 1});
  EXPECT_THAT(groups.group_of(1), ElementsAre(0, 1));
  disconnect(groups, {0, 1});
  EXPECT_THAT(groups.group_of(1), ElementsAre(1));
}

TEST(ConnectedGroups, SpacesThatConnectedTwiceDisconnectTwice) {
  ConnectedGroups groups;
  groups.spawned(0, 1);
  connect(groups, {0, 1});
  connect(groups, {0, 1});
  disconnect(groups, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1));
  disconnect(groups, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0));
}

TEST(ConnectedGroups, ReachThroughOtherSpacesWhileTheseLive) {
  ConnectedGroups groups;
  groups.spawned(0, 1);
  groups.spawned(1, 2);
  groups.spawned(0, 3);
  EXPECT_THAT(groups.group_of(2), ElementsAre(0, 1, 2, 3));
  connect(groups, {1, 2});
  disconnect(groups, {1, 2});
  EXPECT_THAT(groups.group_of(2), ElementsAre(2));
  EXPECT_THAT(groups.group_of(3), ElementsAre(0, 1, 3));
  connect(groups, {1, 2, 3});
  groups.closed(1);
  EXPECT_THAT(groups.group_of(2), ElementsAre(0, 2, 3));
  disconnect(groups, {1, 2, 3});
  EXPECT_THAT(groups.group_of(2), ElementsAre(2));
  connect(groups, {4});
  EXPECT_THAT(groups.group_of(4), ElementsAre(4));
}

TEST(ConnectedGroups, AConnectionHoldsWhenEachSideHasReportedIt) {
  ConnectedGroups groups;
  groups.connect(1, {2, 3}, {2});
  groups.connect(1, {2, 3}, {2});  // a second report still confirms one of them only
  EXPECT_THAT(groups.group_of(2), ElementsAre(2));
  groups.disconnect(1, {2, 3});
  groups.connect(4, {2, 3}, {3});
  EXPECT_THAT(groups.group_of(2), ElementsAre(2, 3));
  groups.disconnect(1, {2, 3});
  EXPECT_THAT(groups.group_of(3), ElementsAre(2, 3));  // host 4 has not reported the end
  groups.disconnect(4, {2, 3});
  EXPECT_THAT(groups.group_of(3), ElementsAre(3));
}

TEST(ConnectedGroups, OnlyAHostThatReportedAConnectionReportsItsEnd) {
  ConnectedGroups groups;
  groups.spawned(0, 1);
  groups.disconnect(2, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1));
  groups.connect(2, {0, 1}, {0});  // before the child's host did
  groups.disconnect(2, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1));
  groups.connect(3, {0, 1}, {1});
  groups.disconnect(2, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1));
  groups.disconnect(3, {0, 1});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0));
}

TEST(ConnectedGroups, TheReportsOfOneHostAreBounded) {
  ConnectedGroups groups(3);
  for (std::uint32_t space = 1; space <= 4; ++space) connect(groups, {0, space});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 1, 2, 3));
  groups.connect(1, {7, 9999}, {7, 9999});  // another host may
  EXPECT_THAT(groups.group_of(7), ElementsAre(7, 9999));
  disconnect(groups, {0, 1});
  connect(groups, {0, 4});
  EXPECT_THAT(groups.group_of(0), ElementsAre(0, 2, 3, 4));
}

}  // namespace
}  // namespace regroup::pmi
