// Which members are started to fill a job up.
#include "membership/coordinator/starts.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::seconds;
using FreeSlots = std::vector<std::uint32_t>;

constexpr base::TimePoint kStart{seconds(1000)};

class Starts : public testing::Test {
 protected:
  // A member in restart slot `slot`.
  MemberInfo& add(std::uint32_t slot, MemberState state = MemberState::kActive) {
    MemberInfo& r = members_.add(members_.next_id(), 0, kStart);
    r.state = state;
    r.restart_slot = slot;
    return r;
  }
  FreeSlots slots(std::uint32_t spares = 0, base::TimePoint now = kStart) const {
    FreeSlots out;
    for (const MemberStart& one : missing_members(now, members_, size_, spares, budget_))
      out.push_back(one.restart_slot);
    return out;
  }

  MemberTable members_;
  JobSize size_{{.min = 1, .max = 8, .target = 4, .slots = 5}};
  RestartBudget budget_{RelaunchPolicy{}};
};

TEST_F(Starts, FillTheLowestFreeRestartSlotsUpToTheDesiredSize) {
  for (const std::uint32_t slot : {0, 2}) add(slot);
  EXPECT_EQ(slots(), (FreeSlots{1, 3}));
  const auto starts = missing_members(kStart, members_, size_, 0, budget_);
  EXPECT_EQ(starts.at(0).rank, 2U);
  EXPECT_EQ(starts.at(1).rank, 3U);
  EXPECT_EQ(starts.at(1).world_size, 4U);
}

TEST_F(Starts, AreNoneInAFullJob) {
  for (const std::uint32_t slot : {0, 1, 2, 3}) add(slot);
  EXPECT_EQ(slots(), FreeSlots{});
  EXPECT_EQ(slots(2), FreeSlots{4}) << "one spare, for which there is a slot";
  EXPECT_EQ(missing_members(kStart, members_, size_, 2, budget_).at(0).world_size, 5U);
}

TEST_F(Starts, WaitForTheProcessThatStillRunsInTheSlot) {
  for (const std::uint32_t slot : {0, 1, 2, 3}) add(slot);
  MemberInfo& lost = add(4, MemberState::kLost);  // not reaped
  size_.request(5);
  EXPECT_EQ(slots(), FreeSlots{});
  lost.status = 1;
  EXPECT_EQ(slots(), FreeSlots{4});
}

TEST_F(Starts, WaitForTheBackOffOfTheirSlot) {
  for (const std::uint32_t slot : {0, 1, 2}) add(slot);
  budget_.put_off(kStart, 3, true);
  EXPECT_EQ(slots(), FreeSlots{});
  EXPECT_EQ(slots(0, kStart + seconds(1)), FreeSlots{3});
}

}  // namespace
}  // namespace regroup::membership
