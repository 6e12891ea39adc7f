// One limit covers the start of an agent up to its first message, whichever step takes long. The
// test plays the agents; a fake spawner reports them.
#include "launcher/agent/children.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <set>

#include "launcher/agent/fake_spawner.h"
#include "launcher/agent/wire.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using agent::FakeSpawner;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::run_until;
using transport::SecureChannel;

constexpr proto::NodeId kController = 0;
constexpr milliseconds kEarly{5};  // clocks are read one after the other

class NodeChildren : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  void make(base::Duration limit, std::size_t parallel = 32) {
    ChildrenOptions options;
    options.job = "job-1";
    options.build = "1";
    options.secret = secret_;
    options.limit = limit;
    Children::Events events{
        .linked = [this](proto::NodeId node, const std::string&) { linked_.insert(node); },
        .message = [](proto::NodeId, const Message&) {},
        .silent = [this](proto::NodeId node, bool silent) { silent_[node] = silent; },
        .line = [](proto::NodeId, const std::string&) {},
        .lost =
            [this](proto::NodeId node, const base::Status& why) {
              lost_.emplace(node, Lost{why, Clock::now()});
            },
        .exited = [] {}};
    auto made = Children::make(loop_, std::move(options), std::move(events));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    children_ = std::move(*made);
    way_.before = {"fake"};
    way_.make = [this, limit, parallel](auto, agent::SpawnEvents told) {
      const auto begun = told.begun;
      told.begun = [this, begun](proto::NodeId node) {
        begun_[node] = Clock::now();
        begun(node);
      };
      auto fake = std::make_unique<FakeSpawner>(
          loop_, std::move(told), agent::FakeSpawnerOptions{.parallel = parallel, .limit = limit});
      for (const auto& [host, delay] : delays_) fake->delay(host, delay);
      return fake;
    };
  }
  void start(proto::NodeId node) {
    ASSERT_TRUE(children_->start({node, fmt::format("node{}", node), "", false, way_}).ok());
  }
  // Connects as the agent of that host and sends `first`, if any.
  void link(proto::NodeId node, const std::optional<Message>& first) {
    const std::string& endpoints = children_->endpoints();
    const auto port = std::stoul(endpoints.substr(endpoints.rfind(':') + 1));
    auto channel = SecureChannel::client(loop_, transport::node(secret_, node),
                                         transport::connect_to(static_cast<std::uint16_t>(port)),
                                         kController, Link::limits());
    ASSERT_TRUE(channel.ok());
    (*channel)->start({.message = {}, .closed = [](const base::Status&) {}});
    agents_.push_back(std::make_unique<Link>(
        *channel, Link::Handlers{[](const Message&) {}, [](const base::Status&) {}}));
    if (first) agents_.back()->send(*first);
    ASSERT_TRUE(run_until(loop_, [&] { return linked_.contains(node); }));
  }
  // The time since its start.
  Clock::duration lost_after(proto::NodeId node) {
    EXPECT_TRUE(run_until(loop_, [&] { return lost_.contains(node); }));
    return lost_.contains(node) ? lost_.at(node).at - begun_.at(node) : Clock::duration::max();
  }

  struct Lost {
    base::Status why;
    Clock::time_point at;
  };
  boost::asio::io_context loop_;
  std::shared_ptr<const transport::JobSecret> secret_ = transport::new_secret();
  std::map<std::string, base::Duration> delays_;  // by host: until it is up
  std::map<proto::NodeId, Clock::time_point> begun_;
  std::set<proto::NodeId> linked_;
  std::map<proto::NodeId, bool> silent_;
  std::map<proto::NodeId, Lost> lost_;
  HostAccess way_;
  std::unique_ptr<Children> children_;
  std::vector<std::unique_ptr<Link>> agents_;
};

TEST_F(NodeChildren, BothDirectionsShareOneTimeLimit) {
  delays_["node1"] = milliseconds(1700);
  make(seconds(2));
  start(1);
  const auto after = lost_after(1);
  EXPECT_GE(after, seconds(2) - kEarly);
  EXPECT_LT(after, milliseconds(3500));
  EXPECT_EQ(lost_.at(1).why.code(), base::Code::kDeadlineExceeded);
  EXPECT_THAT(lost_.at(1).why.message(),
              testing::MatchesRegex(
                  "host node1: its agent was started, but could not connect back to .* within 2 s "
                  "\\(a firewall\\?\\)"));
}

TEST_F(NodeChildren, ASilentConnectionHasTheSameTimeLimit) {
  make(seconds(2));
  start(1);
  link(1, std::nullopt);
  const auto after = lost_after(1);
  EXPECT_GE(after, seconds(2) - kEarly);
  EXPECT_LT(after, milliseconds(3800));
  EXPECT_EQ(lost_.at(1).why.message(),
            "host node1: its agent connected, but sent no message within 2 s");
}

TEST_F(NodeChildren, ALateChildDoesNotWaitForTheOthers) {
  for (int i = 2; i <= 5; ++i) delays_[fmt::format("node{}", i)] = milliseconds(380 * i);
  make(seconds(2));
  for (proto::NodeId node = 1; node <= 5; ++node) start(node);
  EXPECT_LT(lost_after(1), milliseconds(3800));
}

TEST_F(NodeChildren, ManyLateChildrenHaveTwiceTheTimeWhileOthersConnect) {
  for (int i = 1; i <= kMany + 2; ++i) delays_[fmt::format("node{}", i)] = {};
  for (int i = kMany + 3; i <= kMany + 8; ++i)
    delays_[fmt::format("node{}", i)] = milliseconds(150 * (i - kMany - 2));
  make(seconds(1));
  for (const auto& [host, delay] : delays_)
    start(static_cast<proto::NodeId>(std::stoul(host.substr(4))));
  EXPECT_GE(lost_after(1), milliseconds(1800));
  EXPECT_LT(lost_after(1), milliseconds(2900));
}

TEST_F(NodeChildren, TheTimeLimitCountsFromAChildsTurn) {
  delays_["node1"] = base::Duration::max();
  make(seconds(1), 1);
  start(1);
  start(2);
  const auto after = lost_after(2);
  EXPECT_GE(begun_.at(2) - begun_.at(1), seconds(1) - kEarly);
  EXPECT_GE(after, seconds(1) - kEarly);
  EXPECT_EQ(lost_.at(1).why.message(), "host node1: no answer");
}

TEST_F(NodeChildren, ASilentChildIsReportedAndLostAfterFiveSeconds) {
  make(seconds(20));
  start(1);
  link(1, Message(Heartbeat{}));
  ASSERT_TRUE(run_until(loop_, [this] { return silent_.contains(1); }));
  EXPECT_TRUE(silent_.at(1));
  EXPECT_FALSE(lost_.contains(1));
  agents_[0]->send(Heartbeat{});
  ASSERT_TRUE(run_until(loop_, [this] { return !silent_.at(1); }));
  const auto heard = Clock::now();
  ASSERT_TRUE(run_until(loop_, [this] { return lost_.contains(1); }));
  EXPECT_EQ(lost_.at(1).why.message(), "host node1: no message from its agent for 5 s");
  EXPECT_GE(lost_.at(1).at - heard, kSilence - kHeartbeatInterval);
  EXPECT_LT(lost_.at(1).at - heard, kSilence + seconds(4));
}

}  // namespace
}  // namespace regroup::agent
