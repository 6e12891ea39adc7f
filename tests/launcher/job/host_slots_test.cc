// How many members a host takes: what it was given, what it has, what it has resources for.
#include "launcher/job/host_slots.h"

#include <gtest/gtest.h>

namespace regroup::job {
namespace {

TEST(HostSlots, AreWhatIsGivenElseWhatIsReportedWithinTheResources) {
  constexpr std::uint32_t kReported = 8;
  constexpr struct {
    std::uint32_t given, resources, usable;
  } kCases[] = {{0, 0, 8}, {3, 0, 3}, {12, 0, 12}, {0, 2, 2}, {3, 2, 2}, {3, 5, 3}};
  for (const auto& [given, resources, usable] : kCases) {
    HostSlots slots({{.name = "a", .slots = given}});
    slots.set_resources(0, resources);
    EXPECT_EQ(slots.usable(0, kReported), usable) << given << " " << resources;
  }
}

TEST(HostSlots, ChangeByHost) {
  HostSlots slots({{.name = "a", .slots = 2}});
  slots.add(4, true);
  EXPECT_FALSE(slots.leased(0) || slots.for_now(0));
  EXPECT_TRUE(slots.leased(1));
  slots.give(0, 1, true);
  EXPECT_TRUE(slots.for_now(0));
  slots.give(0, 1);
  EXPECT_FALSE(slots.for_now(0));
  EXPECT_EQ(slots.given(0), 1U);
  EXPECT_EQ(slots.given(1), 4U);
  slots.set_resources(1, 3);
  EXPECT_EQ(slots.usable(1, 8), 3U);
  slots.set_resources(1, 0);
  EXPECT_EQ(slots.usable(1, 8), 4U);
}

}  // namespace
}  // namespace regroup::job
