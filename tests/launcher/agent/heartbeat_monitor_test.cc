// When a peer is reported silent and when lost; only the test lets time pass.
#include "launcher/agent/heartbeat_monitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace regroup::agent {
namespace {

using std::chrono::milliseconds;
using Change = HeartbeatMonitor::Change;

class HeartbeatMonitorTest : public testing::Test {
 protected:
  // No message arrives from now on. Returns the time until `wanted`; nothing: not within ten
  // seconds.
  std::optional<milliseconds> quiet_until(Change wanted) {
    for (milliseconds passed = kHeartbeatInterval; passed < std::chrono::seconds(10);
         passed += kHeartbeatInterval) {
      if (monitor_.on_interval() == wanted) return passed;
    }
    return std::nullopt;
  }

  HeartbeatMonitor monitor_;
};

TEST_F(HeartbeatMonitorTest, APeerIsSilentASecondAfterItsLastMessage) {
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
  EXPECT_TRUE(monitor_.on_message());
  EXPECT_FALSE(monitor_.on_message());
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
}

TEST_F(HeartbeatMonitorTest, ASilentPeerIsReportedOnceAndThenLost) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(4500));  // the first interval after five
  EXPECT_EQ(quiet_until(Change::kSilent), std::nullopt);
}

TEST_F(HeartbeatMonitorTest, ALateHeartbeatIsNotASilence) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(monitor_.on_interval(), Change::kNone);
    EXPECT_FALSE(monitor_.on_message());
  }
}

// A virtual machine that is frozen: its agent has announced the pause.
TEST_F(HeartbeatMonitorTest, AnAnnouncedPauseExtendsTheLimit) {
  monitor_.extend(std::chrono::seconds(3));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(8500));
  static_cast<void>(monitor_.on_message());
  monitor_.extend(base::Duration::zero());
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(5500));
}

// Else the peer would stay silent for ever: its messages would change nothing.
TEST_F(HeartbeatMonitorTest, ASilentPeerRecoversAfterAReset) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  monitor_.reset();
  EXPECT_TRUE(monitor_.on_message());
  monitor_.reset();
  EXPECT_FALSE(monitor_.on_message());
}

}  // namespace
}  // namespace regroup::agent
