// Delays between starts of an agent, and which failures of its starts are reported.
#include "launcher/job/agent_restarts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace regroup::job {
namespace {

using std::chrono::seconds;

constexpr base::TimePoint at(int second) { return base::TimePoint(seconds(second)); }

TEST(AgentRestarts, DoubleTheDelayUpToItsLimit) {
  AgentRestarts restarts;
  std::vector<base::Duration> delays;
  for (int i = 0; i < 7; ++i) delays.push_back(restarts.delay(0, at(0)));
  EXPECT_EQ(delays, (std::vector<base::Duration>{seconds(1), seconds(2), seconds(4), seconds(8),
                                                 seconds(16), seconds(30), seconds(30)}));
  EXPECT_EQ(restarts.delay(1, at(0)), seconds(1));  // each host has its own
}

TEST(AgentRestarts, BeginAnewOnceTheAgentWasUpForLong) {
  for (const bool stable : {false, true}) {
    AgentRestarts restarts;
    EXPECT_EQ(restarts.delay(0, at(0)), seconds(1));
    EXPECT_EQ(restarts.delay(0, at(1)), seconds(2));
    restarts.came(0, at(10));
    const auto lost = at(stable ? 14 : 13);
    EXPECT_EQ(restarts.delay(0, lost), stable ? seconds(1) : seconds(4));
    EXPECT_EQ(restarts.delay(0, at(100)), stable ? seconds(2) : seconds(8));  // it has not come
  }
}

TEST(AgentRestarts, KnowWhatTheCoordinatorKnows) {
  AgentRestarts restarts;
  EXPECT_EQ(restarts.lose(0), AgentStage::kUnknown);
  restarts.await(0);
  EXPECT_EQ(restarts.lose(0), AgentStage::kAwaited);
  EXPECT_EQ(restarts.lose(0), AgentStage::kUnknown);
  restarts.await(0);
  restarts.set_up(0);
  EXPECT_EQ(restarts.lose(0), AgentStage::kInJob);
  EXPECT_EQ(restarts.lose(0), AgentStage::kUnknown);
}

TEST(AgentRestarts, ReportEachReasonOnceAfterTheHostWasInTheJob) {
  AgentRestarts restarts;
  EXPECT_FALSE(restarts.is_news(0, "no route"));
  for (int life = 0; life < 2; ++life) {
    restarts.set_up(0);
    EXPECT_EQ(restarts.lose(0), AgentStage::kInJob);
    EXPECT_TRUE(restarts.is_news(0, "no route"));
    EXPECT_TRUE(restarts.is_news(0, "refused"));
    EXPECT_FALSE(restarts.is_news(0, "no route"));
    EXPECT_FALSE(restarts.is_news(1, "no route"));
  }
}

}  // namespace
}  // namespace regroup::job
