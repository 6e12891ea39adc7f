// Limits are seen to be kept: nothing is given up earlier, nor much later.
#include "tests/launcher/agent/spawner_conformance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

constexpr std::chrono::milliseconds kShort{1500};   // in which an agent comes up on any machine
constexpr std::chrono::seconds kGrace{2};           // as spawner.h has it
constexpr std::chrono::milliseconds kClockSkew{5};  // clocks are read one after the other
constexpr std::chrono::seconds kMargin{4};          // of a machine that is busy

constexpr std::pair<const char*, const char*> kAgents[] = {
    {"good", "dd of=/dev/null bs=1 count=40 status=none; echo ready; exec cat > /dev/null"},
    {"leaves", "exit 7"},
    {"stays", "exec sleep 1000"}};

}  // namespace

SpawnerConformance::SpawnerConformance() {
  char name[] = "/tmp/conformance-XXXXXX";
  folder_ = ::mkdtemp(name);
  for (const auto& [host, script] : kAgents) {
    const std::string path = folder_ + "/" + host;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
}

SpawnerConformance::~SpawnerConformance() {
  made_ = {};
  std::filesystem::remove_all(folder_);
}

void SpawnerConformance::make(std::size_t parallel, base::Duration limit) {
  const auto tell = [this](const std::string& what) {
    story_.push_back(what);
    at_.emplace(what, Clock::now());
  };
  SpawnEvents events;
  events.begun = [=](proto::NodeId node) { tell(fmt::format("begun {}", node)); };
  events.up = [=, this](proto::NodeId node) {
    tell(fmt::format("up {}", node));
    on_up_();
  };
  events.line = [=](proto::NodeId node, const std::string& line) {
    tell(fmt::format("line {} {}", node, line));
  };
  events.ended = [=, this](proto::NodeId node, const base::Status& why) {
    tell(fmt::format("ended {}", node));
    ended_[node] = why;
  };
  made_ = GetParam().make(
      {loop_, folder_, transport::new_secret(), std::move(events), parallel, limit});
}

void SpawnerConformance::start(proto::NodeId node, const std::string& host) {
  AgentOrder order;
  order.node = node;
  order.host = host;
  order.program = folder_ + "/" + (std::filesystem::exists(folder_ + "/" + host) ? host : "good");
  made_.spawner->start(order);
}

bool SpawnerConformance::wait(const std::string& what) {
  return transport::run_until(loop_, [&] { return told(what); });
}

TEST_P(SpawnerConformance, ReportsTheEventsOfAnAgentInOrder) {
  make();
  start(1, "good");
  EXPECT_TRUE(story_.empty());
  ASSERT_TRUE(wait("up 1"));
  made_.say(1);
  ASSERT_TRUE(wait("line 1 ready"));
  made_.spawner->end(1);
  EXPECT_FALSE(told("ended 1"));
  ASSERT_TRUE(wait("ended 1"));
  EXPECT_THAT(story_, ElementsAre("begun 1", "up 1", "line 1 ready", "ended 1"));
  EXPECT_TRUE(ended_[1].ok()) << ended_[1].to_string();
  made_.spawner->end(1);
  loop_.restart();
  loop_.poll();
  EXPECT_EQ(story_.size(), 4U);
}

TEST_P(SpawnerConformance, AnAgentThatFailsIsNamedWithItsHost) {
  make();
  start(1, "leaves");
  ASSERT_TRUE(wait("ended 1"));
  EXPECT_THAT(ended_[1].message(), StartsWith("leaves: "));
  EXPECT_FALSE(ended_[1].ok());
}

TEST_P(SpawnerConformance, AnAgentThatDoesNotLeaveIsGivenUp) {
  make();
  start(1, "stays");
  ASSERT_TRUE(wait("up 1"));
  const auto asked = Clock::now();
  made_.spawner->end(1);
  ASSERT_TRUE(wait("ended 1"));
  EXPECT_FALSE(ended_[1].ok());
  EXPECT_GE(at_["ended 1"] - asked, kGrace - kClockSkew);
  EXPECT_LT(at_["ended 1"] - asked, kGrace + kMargin);
}

TEST_P(SpawnerConformance, AnAgentIsStartedOnce) {
  make();
  start(1, "good");
  start(1, "good");
  start(2, "good");
  ASSERT_TRUE(wait("up 1") && wait("up 2"));
  EXPECT_EQ(std::ranges::count(story_, "up 1"), 1);
  EXPECT_EQ(std::ranges::count(story_, "begun 1"), 1);
}

TEST_P(SpawnerConformance, OrdersWaitForTheirTurn) {
  make(1);
  start(1, "good");
  start(2, "good");
  ASSERT_TRUE(wait("up 2"));
  std::erase_if(story_, [](const std::string& what) { return what.starts_with("line"); });
  EXPECT_THAT(story_, ElementsAre("begun 1", "up 1", "begun 2", "up 2"));
}

TEST_P(SpawnerConformance, StartsNoQueuedAgentAfterTheEnd) {
  make(1);
  start(1, "good");
  start(2, "good");
  made_.spawner->end(2);
  ASSERT_TRUE(wait("ended 2") && wait("up 1"));
  EXPECT_FALSE(told("begun 2"));
  EXPECT_THAT(ended_[2].message(), StartsWith("good: "));
}

TEST_P(SpawnerConformance, AHandlerMayEndTheSpawner) {
  make();
  on_up_ = [this] { made_.spawner.reset(); };
  start(1, "good");
  start(2, "good");
  ASSERT_TRUE(transport::run_until(loop_, [this] { return !made_.spawner; }));
  const auto story = story_;
  loop_.restart();
  loop_.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(story_, story);
}

TEST_P(SpawnerFailures, ReportsARefusalAtOnceAndAHangAtTheLimit) {
  make(32, kShort);
  start(1, "hung");
  start(2, "refused");
  start(3, "good");
  ASSERT_TRUE(wait("ended 2") && wait("up 3") && wait("ended 1"));
  EXPECT_LT(at_["ended 2"], at_["ended 1"]);
  EXPECT_LT(at_["up 3"], at_["ended 1"]);
  EXPECT_THAT(ended_[2].message(), StartsWith("refused: "));
  EXPECT_NE(ended_[2].code(), base::Code::kDeadlineExceeded);
  EXPECT_THAT(ended_[1].message(), StartsWith("hung: "));
  EXPECT_EQ(ended_[1].code(), base::Code::kDeadlineExceeded);
  EXPECT_GE(at_["ended 1"] - at_["begun 1"], kShort - kClockSkew);
  EXPECT_LT(at_["ended 1"] - at_["begun 1"], kShort + kMargin);
  EXPECT_FALSE(told("up 1") || told("up 2") || told("line 1 ready") || told("line 2 ready"));
}

TEST_P(SpawnerFailures, TheTimeLimitCountsFromAnAgentsTurn) {
  make(1, kShort);
  start(1, "hung");
  start(2, "hung");
  ASSERT_TRUE(wait("ended 2"));
  EXPECT_THAT(story_, ElementsAre("begun 1", "ended 1", "begun 2", "ended 2"));
  EXPECT_GE(at_["ended 2"] - at_["begun 2"], kShort - kClockSkew);
  EXPECT_LT(at_["ended 2"] - at_["begun 2"], kShort + kMargin);
}

TEST_P(SpawnerFailures, TheDefaultTimeLimitIsFiveSeconds) {
  make();
  start(1, "hung");
  ASSERT_TRUE(wait("ended 1"));
  EXPECT_GE(at_["ended 1"] - at_["begun 1"], std::chrono::seconds(5) - kClockSkew);
  EXPECT_LT(at_["ended 1"] - at_["begun 1"], std::chrono::seconds(5) + kMargin);
}

}  // namespace regroup::agent
