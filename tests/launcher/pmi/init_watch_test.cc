// When MPI_Init of a world can never complete.
#include "launcher/pmi/init_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

using testing::Eq;
using testing::Optional;

constexpr const char* kWell = "(pid 7) exited with code 0";

TEST(InitWatch, ARankThatEndsWhileAnotherWaitsIsNamed) {
  InitWatch watch;
  EXPECT_EQ(watch.begun(1), std::nullopt);
  EXPECT_THAT(watch.ended(0, kWell),
              Optional(Eq("rank 0 (pid 7) exited with code 0 before it called MPI_Init, but rank 1 "
                          "waits for it in MPI_Init")));
}

TEST(InitWatch, SoIsOneThatHasEndedBeforeTheFirstCall) {
  InitWatch watch(2);
  EXPECT_EQ(watch.ended(0, kWell), std::nullopt);
  EXPECT_EQ(watch.ended(3, kWell), std::nullopt);
  EXPECT_THAT(watch.begun(1),
              Optional(Eq("rank 0 of spawn 2 (pid 7) exited with code 0 before it called MPI_Init, "
                          "but rank 1 of spawn 2 waits for it in MPI_Init")));
}

TEST(InitWatch, ProgramsWithoutMpiEndAsTheyLike) {
  InitWatch watch;
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(watch.ended(rank, kWell), std::nullopt);
}

TEST(InitWatch, ARankThatHasCalledInitMayEnd) {
  InitWatch watch;
  EXPECT_EQ(watch.begun(0), std::nullopt);
  EXPECT_EQ(watch.begun(1), std::nullopt);
  watch.finalized(0);
  EXPECT_EQ(watch.ended(0, kWell), std::nullopt);
  EXPECT_EQ(watch.ended(1, kWell), std::nullopt);
}

TEST(InitWatch, NobodyWaitsOnceAllOthersHaveFinalized) {
  InitWatch watch;
  EXPECT_EQ(watch.begun(0), std::nullopt);
  watch.finalized(0);
  EXPECT_EQ(watch.ended(1, kWell), std::nullopt);
}

TEST(InitWatch, NamesTheRanksThatOthersWaitFor) {
  InitWatch watch;
  EXPECT_EQ(watch.waits(4), std::nullopt);
  EXPECT_EQ(watch.begun(1), std::nullopt);
  EXPECT_THAT(watch.waits(4), Optional(Eq("rank 1 waits in MPI_Init for rank 0 and 2 more")));
  EXPECT_EQ(watch.begun(0), std::nullopt);
  EXPECT_EQ(watch.begun(2), std::nullopt);
  EXPECT_THAT(watch.waits(4), Optional(Eq("rank 0 waits in MPI_Init for rank 3")));
  EXPECT_EQ(watch.begun(3), std::nullopt);
  EXPECT_EQ(watch.waits(4), std::nullopt);
}

TEST(ProtocolWatch, RanksOfDifferentMpisDoNotMeet) {
  ProtocolWatch watch;
  EXPECT_EQ(watch.speaks("rank 0", Protocol::kPmi1), std::nullopt);
  EXPECT_EQ(watch.speaks("rank 1", Protocol::kPmi1), std::nullopt);
  EXPECT_THAT(watch.speaks("rank 2", Protocol::kPmix),
              Optional(Eq("MPI_Init cannot complete: the MPI of rank 0 speaks PMI-1 (MPICH, Intel "
                          "MPI), that of rank 2 PMIx (Open MPI)")));
}

TEST(ProtocolWatch, ProgramsOfDifferentMpisMayFollowOneAnother) {
  ProtocolWatch watch;
  EXPECT_EQ(watch.speaks("rank 0", Protocol::kPmi1), std::nullopt);
  EXPECT_EQ(watch.speaks("rank 1", Protocol::kPmi1), std::nullopt);
  EXPECT_EQ(watch.speaks("rank 0", Protocol::kPmix), std::nullopt);
  EXPECT_EQ(watch.speaks("rank 1", Protocol::kPmix), std::nullopt);
}

}  // namespace
}  // namespace regroup::pmi
