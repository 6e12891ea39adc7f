// Slots that become free in time go back; else the job keeps them.
#include "launcher/job/slot_reclaims.h"

#include <gtest/gtest.h>

#include <chrono>

namespace regroup::job {
namespace {

using ReclaimStep = SlotReclaims::Step;

constexpr base::TimePoint time_of(int second) {
  return base::TimePoint(std::chrono::seconds(second));
}

TEST(SlotReclaims, EndWhenTheSlotsAreFreeOrTheTimeIsOver) {
  constexpr std::uint32_t kKept = 2;
  constexpr struct {
    bool demanded;
    std::size_t members;
    int second;
    ReclaimStep step;
  } kCases[] = {{true, 3, 9, ReclaimStep::kWait},    {true, 3, 10, ReclaimStep::kKeep},
                {true, 2, 9, ReclaimStep::kReport},  {true, 2, 11, ReclaimStep::kReport},
                {false, 3, 9, ReclaimStep::kWait},   {false, 3, 10, ReclaimStep::kKeep},
                {false, 1, 11, ReclaimStep::kReturn}};
  for (const auto& each : kCases) {
    SlotReclaims reclaims;
    reclaims.begin(
        5, {each.demanded ? std::optional<lease::GrantId>(7) : std::nullopt, 4, time_of(10)});
    EXPECT_EQ(reclaims.step(5, each.members, kKept, time_of(each.second)), each.step)
        << each.demanded << " " << each.members << " " << each.second;
  }
}

TEST(SlotReclaims, AreKnownByHostAndClientUntilTheyEnd) {
  SlotReclaims reclaims;
  reclaims.begin(5, {7, 4, {}});
  reclaims.begin(6, {std::nullopt, 2, {}});
  EXPECT_TRUE(reclaims.has(5));
  EXPECT_FALSE(reclaims.has(4));
  EXPECT_EQ(reclaims.at(6).slots, 2U);
  EXPECT_EQ(reclaims.clients(), std::set<lease::GrantId>{7});
  EXPECT_EQ(reclaims.end(5).slots, 4U);
  EXPECT_FALSE(reclaims.has(5));
  EXPECT_TRUE(reclaims.clients().empty());
  EXPECT_TRUE(reclaims.has(6));
}

}  // namespace
}  // namespace regroup::job
