// BringUpWait without a clock, hosts or agents.
#include "launcher/agent/bring_up_wait.h"

#include <gmock/gmock.h>

namespace regroup::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::TimePoint kStart{seconds(100)};

TEST(BringUpWait, EndsAtItsDeadlineWithoutConditions) {
  BringUpWait wait;
  wait.begin({}, seconds(5), seconds(20), kStart);
  EXPECT_FALSE(wait.is_over(kStart + seconds(60)));
  EXPECT_FALSE(wait.has_passed(kStart + seconds(19)));
  EXPECT_TRUE(wait.has_passed(kStart + seconds(20)));
  EXPECT_EQ(wait.next_check(kStart), kStart + milliseconds(100));
  EXPECT_EQ(wait.next_check(kStart + milliseconds(19950)), kStart + seconds(20));
}

TEST(BringUpWait, EndsWithEnoughAgentsOnceNoOtherHasConnectedForOneLimit) {
  bool enough = true;
  BringUpWait wait;
  wait.begin({.enough = [&] { return enough; }}, seconds(5), seconds(20), kStart);
  EXPECT_FALSE(wait.is_over(kStart + milliseconds(4999)));
  wait.on_up(kStart + seconds(3));
  EXPECT_FALSE(wait.is_over(kStart + seconds(7)));
  EXPECT_TRUE(wait.is_over(kStart + seconds(8)));
  enough = false;
  EXPECT_FALSE(wait.is_over(kStart + seconds(8)));
}

TEST(BringUpWait, EndsAtOnceOnRequest) {
  bool over = false;
  BringUpWait wait;
  wait.begin({.over = [&] { return over; }}, seconds(5), seconds(20), kStart);
  EXPECT_FALSE(wait.is_over(kStart));
  over = true;
  EXPECT_TRUE(wait.is_over(kStart));
}

TEST(BringUpWait, ReportsFailuresUntilTheJobBegins) {
  std::vector<std::string> told;
  BringUpWait wait;
  EXPECT_FALSE(wait.reports_failures());
  wait.begin({.failed = [&](const base::Status& why) { told.push_back(why.message()); }},
             seconds(5), seconds(20), kStart);
  EXPECT_TRUE(wait.reports_failures());
  wait.on_failed(base::peer_lost("a"));
  wait.end();
  EXPECT_FALSE(wait.reports_failures());
  wait.on_failed(base::peer_lost("b"));
  EXPECT_THAT(told, testing::ElementsAre("a"));
  ASSERT_EQ(wait.failures().size(), 2U);
  EXPECT_EQ(wait.failures()[1].message(), "b");
}

TEST(BringUpWait, LongestWaitIncludesLevelsTurnsAndTheAllocator) {
  EXPECT_EQ(longest_bring_up(1, 1, seconds(5), false), seconds(15));
  EXPECT_EQ(longest_bring_up(1, 3, seconds(5), false), seconds(45));
  EXPECT_GT(longest_bring_up(1000, 1, seconds(5), false),
            longest_bring_up(1, 1, seconds(5), false));
  EXPECT_GT(longest_bring_up(1, 1, seconds(5), true), longest_bring_up(1, 1, seconds(5), false));
}

}  // namespace
}  // namespace regroup::agent
