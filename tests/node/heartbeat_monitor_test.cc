// When an agent counts as silent and when as lost, by time that only the test lets pass.
#include "launcher/node/heartbeat_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace regroup::node {
namespace {

using std::chrono::milliseconds;
using Change = HeartbeatMonitor::Change;

class NodeHearing : public testing::Test {
 protected:
  // Nothing is heard from now on. How long until this; nothing: not within ten seconds.
  std::optional<milliseconds> quiet_until(Change wanted) {
    for (milliseconds passed = kHeartbeatInterval; passed < std::chrono::seconds(10);
         passed += kHeartbeatInterval) {
      if (monitor_.on_interval() == wanted) return passed;
    }
    return std::nullopt;
  }

  HeartbeatMonitor monitor_;
};

TEST_F(NodeHearing, OneIsSilentASecondAfterItsLastWord) {
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
  EXPECT_TRUE(monitor_.on_message());
  EXPECT_FALSE(monitor_.on_message());
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
}

TEST_F(NodeHearing, OneIsSilentOnceAndThenLost) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(4500));  // the first beat behind five seconds
  EXPECT_EQ(quiet_until(Change::kSilent), std::nullopt);
}

TEST_F(NodeHearing, ABeatThatIsLateIsNotMissed) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(monitor_.on_interval(), Change::kNone);
    EXPECT_FALSE(monitor_.on_message());
  }
}

// A virtual machine that is frozen: its agent has said so before.
TEST_F(NodeHearing, AHostThatStandsStillMayBeSilentForLonger) {
  monitor_.extend(std::chrono::seconds(3));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(8500));
  static_cast<void>(monitor_.on_message());
  monitor_.extend(core::Duration::zero());
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(5500));
}

// Else it would be silent for ever: what is heard of it afterwards would change nothing.
TEST_F(NodeHearing, WhoWasSilentBeforeWeDidNotListenIsHeardAfterwards) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  monitor_.reset();
  EXPECT_TRUE(monitor_.on_message());
  monitor_.reset();
  EXPECT_FALSE(monitor_.on_message());
}

}  // namespace
}  // namespace regroup::node
