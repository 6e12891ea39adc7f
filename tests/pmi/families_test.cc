// Who dies with whom.
#include "launcher/pmi/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

using testing::ElementsAre;
using Spaces = Families::Spaces;

// What the one host of a job tells, which speaks for all.
void met(Families& families, const Spaces& spaces) { families.met(0, spaces, spaces); }
void parted(Families& families, const Spaces& spaces) { families.parted(0, spaces); }

TEST(Families, ASpawnJoinsUntilItsDisconnect) {
  Families families;
  families.spawned(0, 1);
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  met(families, {0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(0, 1));
  parted(families, {0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(1));
  met(families, {0, 1});  // MPI_Comm_connect
  EXPECT_THAT(families.of(1), ElementsAre(0, 1));
}

TEST(Families, ASpawnPartsWithoutAMeetingWhereTheLaunchersHostSaysSo) {
  Families families;
  families.spawned(0, 1);
  families.parted(2, {0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(0, 1));
  parted(families, {0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(1));
}

TEST(Families, WhoMetTwicePartsTwice) {
  Families families;
  families.spawned(0, 1);
  met(families, {0, 1});
  met(families, {0, 1});
  parted(families, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  parted(families, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0));
}

TEST(Families, GoThroughOthersWhileTheseLive) {
  Families families;
  families.spawned(0, 1);
  families.spawned(1, 2);
  families.spawned(0, 3);
  EXPECT_THAT(families.of(2), ElementsAre(0, 1, 2, 3));
  met(families, {1, 2});
  parted(families, {1, 2});
  EXPECT_THAT(families.of(2), ElementsAre(2));
  EXPECT_THAT(families.of(3), ElementsAre(0, 1, 3));
  met(families, {1, 2, 3});
  families.closed(1);
  EXPECT_THAT(families.of(2), ElementsAre(0, 2, 3));
  parted(families, {1, 2, 3});
  EXPECT_THAT(families.of(2), ElementsAre(2));
  met(families, {4});
  EXPECT_THAT(families.of(4), ElementsAre(4));
}

TEST(Families, AMeetingIsBelievedWhenEachSideHasToldOfIt) {
  Families families;
  families.met(1, {2, 3}, {2});
  families.met(1, {2, 3}, {2});  // says it twice, and speaks for one of them all the same
  EXPECT_THAT(families.of(2), ElementsAre(2));
  families.parted(1, {2, 3});
  families.met(4, {2, 3}, {3});
  EXPECT_THAT(families.of(2), ElementsAre(2, 3));
  families.parted(1, {2, 3});
  EXPECT_THAT(families.of(3), ElementsAre(2, 3));  // host 4 has not said so
  families.parted(4, {2, 3});
  EXPECT_THAT(families.of(3), ElementsAre(3));
}

TEST(Families, OnlyWhoToldOfAMeetingTellsThatItIsOver) {
  Families families;
  families.spawned(0, 1);
  families.parted(2, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  families.met(2, {0, 1}, {0});  // before the child did
  families.parted(2, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  families.met(3, {0, 1}, {1});
  families.parted(2, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  families.parted(3, {0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0));
}

TEST(Families, WhatOneHostTellsOfIsBounded) {
  Families families(3);
  for (std::uint32_t space = 1; space <= 4; ++space) met(families, {0, space});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1, 2, 3));
  families.met(1, {7, 9999}, {7, 9999});  // another may
  EXPECT_THAT(families.of(7), ElementsAre(7, 9999));
  parted(families, {0, 1});
  met(families, {0, 4});
  EXPECT_THAT(families.of(0), ElementsAre(0, 2, 3, 4));
}

}  // namespace
}  // namespace regroup::pmi
