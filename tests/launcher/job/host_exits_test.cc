// The ways by which a host leaves a job, and by which it stays.
#include "launcher/job/host_exits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace regroup::job {
namespace {

using Stage = HostStage;
using Event = HostEvent;
using DrainStep = HostExits::Step;
using Sources = std::vector<std::string>;

constexpr base::TimePoint second(int count) { return base::TimePoint(std::chrono::seconds(count)); }

// Rows: stages; columns: demanded, suspended, resumed, unneeded, lost, ended; '-': no change.
TEST(HostStages, AreChangedByTheseEventsOnly) {
  constexpr struct {
    Stage stage;
    const char* next;
  } kRows[] = {{Stage::kStays, "ds-r-l"},
               {Stage::kSuspended, "d-y--l"},
               {Stage::kDraining, "----ll"},
               {Stage::kReturning, "----ll"},
               {Stage::kLeft, "------"}};
  constexpr Event kColumns[] = {Event::kDemanded, Event::kSuspended, Event::kResumed,
                                Event::kUnneeded, Event::kLost,      Event::kEnded};
  const auto letter = [](std::optional<Stage> stage) {
    return stage ? "ysdrl"[static_cast<std::size_t>(*stage)] : '-';
  };
  for (const auto& [stage, expected] : kRows) {
    std::string row;
    for (const Event event : kColumns) row += letter(next_stage(stage, event));
    EXPECT_EQ(row, expected) << static_cast<int>(stage);
  }
}

TEST(HostExits, ADemandCanOnlyBecomeMoreUrgent) {
  HostExits exits;
  EXPECT_TRUE(exits.stays(3));
  const auto first = exits.demand(3, second(10));
  EXPECT_TRUE(first.moved);
  EXPECT_FALSE(first.sooner);
  const auto later = exits.demand(3, second(11));
  EXPECT_FALSE(later.moved || later.sooner);
  const auto sooner = exits.demand(3, second(5));
  EXPECT_FALSE(sooner.moved);
  EXPECT_TRUE(sooner.sooner);
  EXPECT_EQ(exits.step(3, 1, second(4)), DrainStep::kWait);
  EXPECT_EQ(exits.step(3, 1, second(5)), DrainStep::kGiveUp);
  EXPECT_EQ(exits.step(3, 0, second(5)), DrainStep::kDismiss);
  EXPECT_FALSE(exits.keeps_agent(3));
}

TEST(HostExits, ASuspendedHostStaysAndIsUsedAgain) {
  HostExits exits;
  EXPECT_TRUE(exits.suspend(3, second(10), "a").moved);
  EXPECT_FALSE(exits.suspend(3, second(20), "b").moved);
  EXPECT_TRUE(exits.suspend(3, second(8), "b").sooner);
  EXPECT_EQ(exits.suspended_by(3), (Sources{"a", "b"}));
  EXPECT_TRUE(exits.keeps_agent(3));
  EXPECT_EQ(exits.step(3, 1, second(7)), DrainStep::kWait);
  EXPECT_EQ(exits.step(3, 1, second(8)), DrainStep::kGiveUp);
  EXPECT_EQ(exits.step(3, 0, second(8)), DrainStep::kNothing);
  EXPECT_EQ(exits.leave(3, Event::kLost), std::nullopt);
  EXPECT_TRUE(exits.suspended(3));
  EXPECT_TRUE(exits.resume(3));
  EXPECT_FALSE(exits.resume(3));
  EXPECT_TRUE(exits.stays(3));
  EXPECT_EQ(exits.suspended_by(3), Sources{});
  EXPECT_EQ(exits.step(3, 1, second(100)), DrainStep::kNothing);
}

TEST(HostExits, ASuspendedHostMayBeDemandedForGood) {
  for (const bool sooner : {false, true}) {
    HostExits exits;
    EXPECT_TRUE(exits.suspend(3, second(10), "a").moved);
    const auto change = exits.demand(3, second(sooner ? 5 : 20));
    EXPECT_TRUE(change.moved);
    EXPECT_EQ(change.sooner, sooner);
    EXPECT_EQ(exits.step(3, 1, second(9)), sooner ? DrainStep::kGiveUp : DrainStep::kWait);
    EXPECT_EQ(exits.step(3, 1, second(10)), DrainStep::kGiveUp);
    EXPECT_EQ(exits.suspended_by(3), Sources{});
    EXPECT_FALSE(exits.suspend(3, second(10), "b").moved);
    EXPECT_FALSE(exits.resume(3));
  }
}

TEST(HostExits, RememberAtMostSixteenSources) {
  HostExits exits;
  for (int i = 0; i < 20; ++i) (void)exits.suspend(3, second(10), std::to_string(i));
  EXPECT_EQ(exits.suspended_by(3).size(), 16U);
}

TEST(HostExits, AHostLeavesOnceFromTheStageThatItIsIn) {
  HostExits exits;
  EXPECT_EQ(exits.leave(0, Event::kLost), std::nullopt);
  EXPECT_TRUE(exits.return_idle(0, second(10)).moved);
  EXPECT_EQ(exits.stage(0), Stage::kReturning);
  EXPECT_FALSE(exits.demand(0, second(10)).moved);
  EXPECT_EQ(exits.leave(0, Event::kEnded), Stage::kReturning);
  EXPECT_EQ(exits.leave(0, Event::kEnded), std::nullopt);
  EXPECT_TRUE(exits.has_left(0));
  EXPECT_EQ(exits.step(0, 0, second(20)), DrainStep::kNothing);
  const auto change = exits.demand(0, second(5));
  EXPECT_FALSE(change.moved || change.sooner);
  EXPECT_TRUE(exits.demand(1, second(10)).moved);
  EXPECT_EQ(exits.leave(1, Event::kLost), Stage::kDraining);
}

}  // namespace
}  // namespace regroup::job
