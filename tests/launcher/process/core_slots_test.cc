// Members come and go, seats stay.
#include "launcher/process/core_slots.h"

#include <gtest/gtest.h>

namespace regroup::process {
namespace {

TEST(CoreSlots, ANewMemberTakesTheFreedSlot) {
  CoreSlots seats(3);
  EXPECT_EQ(seats.take(10), 0U);
  EXPECT_EQ(seats.take(11), 1U);
  EXPECT_EQ(seats.take(12), 2U);
  seats.leave(11);
  seats.leave(11);
  seats.leave(99);
  EXPECT_EQ(seats.free(), 1U);
  EXPECT_EQ(seats.take(13), 1U);
  seats.leave(12);
  seats.leave(10);
  EXPECT_EQ(seats.take(14), 0U);
  EXPECT_EQ(seats.take(15), 2U);
}

TEST(CoreSlots, TooFewSlotsAreSharedEvenly) {
  CoreSlots seats(2);
  proto::MemberId member = 0;
  for (const std::size_t seat : {0, 1, 0, 1}) EXPECT_EQ(seats.take(member++), seat);
  EXPECT_EQ(seats.free(), 0U);
}

TEST(CoreSlots, UnusableSlotsAreSkippedUnlessOnlyTakenOnesAreLeft) {
  CoreSlots seats(3);
  const auto but_first = [](std::size_t seat) { return seat != 0; };
  EXPECT_EQ(seats.take(10, but_first), 1U);
  EXPECT_EQ(seats.take(11, but_first), 2U);
  EXPECT_EQ(seats.take(12, but_first), 0U);  // whoever starts it there is told why not
}

TEST(CoreSlots, WithoutSlotsNoMemberGetsOne) {
  CoreSlots seats(0);
  EXPECT_EQ(seats.take(0), std::nullopt);
  EXPECT_EQ(seats.free(), 0U);
}

}  // namespace
}  // namespace regroup::process
