// When an agent counts as silent and when as lost, by time that only the test lets pass.
#include "launcher/node/hearing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace regroup::node {
namespace {

using std::chrono::milliseconds;
using Change = Hearing::Change;

class NodeHearing : public testing::Test {
 protected:
  // Nothing is heard from now on. How long until this; nothing: not within ten seconds.
  std::optional<milliseconds> quiet_until(Change wanted) {
    for (milliseconds passed = kBeat; passed < std::chrono::seconds(10); passed += kBeat) {
      if (hearing_.miss() == wanted) return passed;
    }
    return std::nullopt;
  }

  Hearing hearing_;
};

TEST_F(NodeHearing, OneIsSilentASecondAfterItsLastWord) {
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
  EXPECT_TRUE(hearing_.hear());
  EXPECT_FALSE(hearing_.hear());
  EXPECT_EQ(quiet_until(Change::kSilent), milliseconds(1000));
}

TEST_F(NodeHearing, OneIsSilentOnceAndThenLost) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(4500));  // the first beat behind five seconds
  EXPECT_EQ(quiet_until(Change::kSilent), std::nullopt);
}

TEST_F(NodeHearing, ABeatThatIsLateIsNotMissed) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(hearing_.miss(), Change::kNone);
    EXPECT_FALSE(hearing_.hear());
  }
}

// A virtual machine that is frozen: its agent has said so before.
TEST_F(NodeHearing, AHostThatStandsStillMayBeSilentForLonger) {
  hearing_.allow(std::chrono::seconds(3));
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(8500));
  static_cast<void>(hearing_.hear());
  hearing_.allow(core::Duration::zero());
  EXPECT_EQ(quiet_until(Change::kLost), milliseconds(5500));
}

// Else it would be silent for ever: what is heard of it afterwards would change nothing.
TEST_F(NodeHearing, WhoWasSilentBeforeWeDidNotListenIsHeardAfterwards) {
  ASSERT_TRUE(quiet_until(Change::kSilent));
  hearing_.forgive();
  EXPECT_TRUE(hearing_.hear());
  hearing_.forgive();
  EXPECT_FALSE(hearing_.hear());
}

}  // namespace
}  // namespace regroup::node
