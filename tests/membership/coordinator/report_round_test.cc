// Which reports the next World waits for.
#include "membership/coordinator/report_round.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

using std::chrono::seconds;
using Nodes = std::vector<proto::NodeId>;

class Reports : public testing::Test {
 protected:
  Reports() {
    for (const proto::NodeId node : {1, 2, 3}) nodes_.add(node, {.slots = 1});
    round_.begin(seconds(100));
  }
  NodeTable nodes_{false};
  ReportRound round_;
};

TEST_F(Reports, IsCompleteOnceEveryNodeHasReported) {
  round_.add(1, {});
  round_.add(3, {{.member = 7}});
  EXPECT_FALSE(round_.complete(nodes_));
  EXPECT_EQ(round_.missing(nodes_), Nodes{2});
  round_.add(2, {});
  EXPECT_TRUE(round_.complete(nodes_));
  EXPECT_EQ(round_.reports().at(3).at(0).member, 7U);
}

TEST_F(Reports, AMemberWithASlotHasJoined) {
  round_.add(1, {{.member = 7, .slot = proto::kNoSlot}});
  EXPECT_FALSE(round_.any_joined());
  round_.add(2, {{.member = 8, .slot = 0}});
  EXPECT_TRUE(round_.any_joined());
  round_.lose(2);
  EXPECT_FALSE(round_.any_joined());
}

TEST_F(Reports, ALostNodeIsNotWaitedForAndItsReportDoesNotCount) {
  for (const proto::NodeId node : {1, 2}) round_.add(node, {});
  nodes_.erase(2);
  round_.lose(2);
  EXPECT_FALSE(round_.complete(nodes_));
  nodes_.erase(3);
  round_.lose(3);
  EXPECT_TRUE(round_.complete(nodes_));
  EXPECT_FALSE(round_.reports().contains(2));
}

TEST_F(Reports, ANewRoundVoidsEarlierReports) {
  round_.add(1, {});
  round_.begin(seconds(101));
  EXPECT_EQ(round_.missing(nodes_), (Nodes{1, 2, 3}));
}

TEST_F(Reports, ANodeIsOverdueTwentySecondsAfterItWasAsked) {
  nodes_.add(4, {.slots = 1});
  round_.ask(4, seconds(110));
  round_.add(1, {});
  EXPECT_EQ(round_.overdue(nodes_, seconds(119)), Nodes{});
  EXPECT_EQ(round_.overdue(nodes_, seconds(120)), (Nodes{2, 3}));
  EXPECT_EQ(round_.overdue(nodes_, seconds(130)), (Nodes{2, 3, 4}));
  for (const proto::NodeId node : {2, 3, 4}) round_.add(node, {});
  EXPECT_EQ(round_.overdue(nodes_, seconds(130)), Nodes{});
}

TEST_F(Reports, ANewRoundGivesLateNodesTheWholeTime) {
  round_.ask(2, seconds(105));
  round_.begin(seconds(110));
  EXPECT_EQ(round_.overdue(nodes_, seconds(129)), Nodes{});
  EXPECT_EQ(round_.overdue(nodes_, seconds(130)), (Nodes{1, 2, 3}));
}

}  // namespace
}  // namespace regroup::membership
