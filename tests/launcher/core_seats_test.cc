// Members come and go, seats stay.
#include "launcher/supervise/core_seats.h"

#include <gtest/gtest.h>

namespace regroup::launcher {
namespace {

using Cores = std::vector<int>;

TEST(CoreSeats, ANewcomerTakesTheSeatThatWasLeft) {
  CoreSeats seats({{0}, {1, 2}, {3}});
  EXPECT_EQ(seats.take(10), Cores({0}));
  EXPECT_EQ(seats.take(11), Cores({1, 2}));
  EXPECT_EQ(seats.take(12), Cores({3}));
  seats.leave(11);
  seats.leave(11);
  seats.leave(99);
  EXPECT_EQ(seats.take(13), Cores({1, 2}));
  seats.leave(12);
  seats.leave(10);
  EXPECT_EQ(seats.take(14), Cores({0}));
  EXPECT_EQ(seats.take(15), Cores({3}));
}

TEST(CoreSeats, WhereThereAreTooFewTheyAreSharedEvenly) {
  CoreSeats seats({{0}, {1}});
  core::MemberId member = 0;
  for (const int core : {0, 1, 0, 1}) EXPECT_EQ(seats.take(member++), Cores({core}));
}

TEST(CoreSeats, WithoutSeatsNobodyIsBound) {
  CoreSeats seats;
  EXPECT_EQ(seats.take(0), Cores());
  seats.leave(0);
}

}  // namespace
}  // namespace regroup::launcher
