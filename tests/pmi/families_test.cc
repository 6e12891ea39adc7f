// Who dies with whom.
#include "launcher/pmi/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

using testing::ElementsAre;

TEST(Families, ASpawnJoinsUntilItsDisconnect) {
  Families families;
  families.spawned(0, 1);
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  families.met({0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(0, 1));
  families.parted({0, 1});
  EXPECT_THAT(families.of(1), ElementsAre(1));
  families.met({0, 1});  // MPI_Comm_connect
  EXPECT_THAT(families.of(1), ElementsAre(0, 1));
}

TEST(Families, WhoMetTwicePartsTwice) {
  Families families;
  families.spawned(0, 1);
  families.met({0, 1});
  families.met({0, 1});
  families.parted({0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0, 1));
  families.parted({0, 1});
  EXPECT_THAT(families.of(0), ElementsAre(0));
}

TEST(Families, GoThroughOthersWhileTheseLive) {
  Families families;
  families.spawned(0, 1);
  families.spawned(1, 2);
  families.spawned(0, 3);
  EXPECT_THAT(families.of(2), ElementsAre(0, 1, 2, 3));
  families.met({1, 2});
  families.parted({1, 2});
  EXPECT_THAT(families.of(2), ElementsAre(2));
  EXPECT_THAT(families.of(3), ElementsAre(0, 1, 3));
  families.met({1, 2, 3});
  families.closed(1);
  EXPECT_THAT(families.of(2), ElementsAre(0, 2, 3));
  families.parted({1, 2, 3});
  EXPECT_THAT(families.of(2), ElementsAre(2));
  families.met({4});
  EXPECT_THAT(families.of(4), ElementsAre(4));
}

}  // namespace
}  // namespace regroup::pmi
