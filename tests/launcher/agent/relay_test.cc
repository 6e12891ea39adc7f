// An agent with children, over real connections. The test plays the controller above and the agents
// below, which a fake program stands for.
#include "launcher/agent/relay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launcher/agent/wire.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using transport::run_until;
using transport::SecureChannel;

constexpr proto::NodeId kRelayHead = 0, kSelf = 1, kRelayChild = 2, kOther = 3, kRelayBelow = 4;

class NodeRelay : public testing::Test {
 protected:
  NodeRelay()
      : secret_(transport::new_secret()),
        listener_(loop_, transport::node(secret_, kRelayHead),
                  [this](std::shared_ptr<SecureChannel> channel) {
                    controller_ = std::make_unique<Link>(std::move(channel), taking(from_relay_));
                  }) {
    std::string folder = std::filesystem::temp_directory_path() / "relay_test.XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    // Prints its arguments and runs until EOF of its input; the test connects in its place.
    std::ofstream(folder_ / "agent")
        << "#!/bin/sh\necho \"$4 $5\" > " << folder_.string() << "/$3.new\nmv " << folder_.string()
        << "/$3.new " << folder_.string() << "/$3\ncat > " << folder_.string() << "/secret.$3\n";
    std::filesystem::permissions(folder_ / "agent", std::filesystem::perms::owner_all);
    EXPECT_TRUE(listener_.start(0).ok());
    options_.job = "job-1";
    options_.node = kSelf;
    options_.secret = secret_;
    options_.environment = {{"PATH", "/usr/bin:/bin"}};
    uplink_ = std::make_unique<Uplink>(
        loop_, connect(kSelf, kRelayHead, listener_.port()), kSelf, false,
        Link::Handlers{[this](const Message& message) { EXPECT_TRUE(relay_->take(message)); },
                       [](const base::Status&) {}});
    relay_ = std::make_unique<Relay>(loop_, options_, *uplink_);
    EXPECT_TRUE(run_until(loop_, [this] { return controller_ != nullptr; }));
  }
  ~NodeRelay() override {
    relay_.reset();
    std::filesystem::remove_all(folder_);
  }

  std::shared_ptr<SecureChannel> connect(proto::NodeId from, proto::NodeId to, std::uint16_t port) {
    auto channel = SecureChannel::client(loop_, transport::node(secret_, from),
                                         transport::connect_to(port), to, Link::limits());
    EXPECT_TRUE(channel.ok());
    (*channel)->start({.message = {}, .closed = [](const base::Status&) {}});
    return *channel;
  }

  static Link::Handlers taking(std::vector<Message>& into) {
    return {[&into](const Message& message) {
              if (!std::holds_alternative<Heartbeat>(message)) into.push_back(message);
            },
            [](const base::Status&) {}};
  }

  void start(const std::vector<proto::NodeId>& nodes, std::uint32_t limit_ms = 20'000) {
    StartAgents start{"node1", {}, folder_ / "agent", "", limit_ms, {}};
    for (const proto::NodeId node : nodes)
      start.children.push_back({node, "node" + std::to_string(node)});
    controller_->send(start);
  }

  // Connects as the agent that was started, once it was.
  void link(proto::NodeId node) {
    const auto file = folder_ / std::to_string(node);
    ASSERT_TRUE(run_until(loop_, [&] { return std::filesystem::exists(file); }));
    std::string parent, endpoints;
    std::ifstream(file) >> parent >> endpoints;
    EXPECT_EQ(parent, std::to_string(kSelf));
    const auto port = std::stoul(endpoints.substr(endpoints.rfind(':') + 1));
    below_[node] = std::make_unique<Link>(connect(node, kSelf, static_cast<std::uint16_t>(port)),
                                          taking(from_above_[node]));
    ASSERT_TRUE(
        run_until(loop_, [&] { return news(ChildEvent::Kind::kConnected, node) != nullptr; }));
  }

  // The event of this kind that the controller got for a child, or nullptr.
  [[nodiscard]] const ChildEvent* news(ChildEvent::Kind kind, proto::NodeId node) const {
    for (const Message& message : from_relay_) {
      const auto* found = std::get_if<ChildEvent>(&message);
      if (found != nullptr && found->kind == kind && found->node == node) return found;
    }
    return nullptr;
  }

  // The messages that the controller got from a node below, without their envelopes.
  [[nodiscard]] std::vector<std::string> heard(proto::NodeId node) const {
    std::vector<std::string> out;
    for (const Message& message : from_relay_) {
      const auto* relayed = std::get_if<Relayed>(&message);
      if (relayed == nullptr || relayed->nodes != std::vector<proto::NodeId>{node}) continue;
      const auto said = decode(relayed->message);
      EXPECT_TRUE(said.ok());
      if (const auto* text = std::get_if<UserMessage>(&*said)) out.push_back(text->text);
    }
    return out;
  }

  std::filesystem::path folder_;
  boost::asio::io_context loop_;
  std::shared_ptr<const transport::JobSecret> secret_;
  NodeAgentOptions options_;
  transport::SecureListener listener_;
  std::unique_ptr<Link> controller_;
  std::unique_ptr<Uplink> uplink_;
  std::unique_ptr<Relay> relay_;
  std::map<proto::NodeId, std::unique_ptr<Link>> below_;
  std::vector<Message> from_relay_;
  std::map<proto::NodeId, std::vector<Message>> from_above_;
};

TEST_F(NodeRelay, MessagesPassInBothDirections) {
  start({kRelayChild, kOther});
  link(kRelayChild);
  link(kOther);
  controller_->send(AddRoute{kRelayChild, {kRelayBelow}});
  controller_->send(Relayed{{kRelayChild, kOther, kRelayBelow}, encode(UserMessage{"to all"})});
  ASSERT_TRUE(run_until(loop_, [this] {
    return from_above_[kRelayChild].size() == 2 && !from_above_[kOther].empty();
  }));
  EXPECT_EQ(std::get<UserMessage>(from_above_[kOther][0]).text, "to all");
  std::vector<proto::NodeId> further;
  for (const Message& message : from_above_[kRelayChild]) {
    if (const auto* relayed = std::get_if<Relayed>(&message)) further = relayed->nodes;
  }
  EXPECT_EQ(further, (std::vector<proto::NodeId>{kRelayBelow}));
  below_[kOther]->send(UserMessage{"of a child"});
  below_[kRelayChild]->send(Relayed{{kRelayBelow}, encode(UserMessage{"from below"})});
  ASSERT_TRUE(
      run_until(loop_, [this] { return !heard(kOther).empty() && !heard(kRelayBelow).empty(); }));
  EXPECT_EQ(heard(kOther), (std::vector<std::string>{"of a child"}));
  EXPECT_EQ(heard(kRelayBelow), (std::vector<std::string>{"from below"}));
}

TEST_F(NodeRelay, ALostChildIsReportedWithItsHost) {
  start({kRelayChild});
  link(kRelayChild);
  below_[kRelayChild]->send(UserMessage{"first"});
  ASSERT_TRUE(run_until(loop_, [this] { return !heard(kRelayChild).empty(); }));
  below_.clear();
  ASSERT_TRUE(
      run_until(loop_, [this] { return news(ChildEvent::Kind::kLost, kRelayChild) != nullptr; }));
  EXPECT_NE(news(ChildEvent::Kind::kLost, kRelayChild)
                ->text.find("host node2: the connection to its agent is lost"),
            std::string::npos);
}

TEST_F(NodeRelay, AChildThatDoesNotStartIsReportedWithItsParent) {
  controller_->send(
      StartAgents{"node1", {}, folder_ / "nothing", "", 20'000, {{kRelayChild, "node2"}}});
  ASSERT_TRUE(
      run_until(loop_, [this] { return news(ChildEvent::Kind::kLost, kRelayChild) != nullptr; }));
  EXPECT_EQ(
      news(ChildEvent::Kind::kLost, kRelayChild)->text,
      "host node2: program " + (folder_ / "nothing").string() + " does not exist (from node1)");
}

TEST_F(NodeRelay, AChildThatSendsNothingIsReportedWithWhatItDid) {
  start({kRelayChild, kOther}, 4'000);
  link(kOther);
  for (const proto::NodeId node : {kRelayChild, kOther})
    ASSERT_TRUE(run_until(loop_, [&] { return news(ChildEvent::Kind::kLost, node) != nullptr; }));
  const std::string silent = news(ChildEvent::Kind::kLost, kRelayChild)->text;
  EXPECT_TRUE(
      silent.starts_with("host node2: its agent was started, but could not connect back to "));
  EXPECT_TRUE(silent.ends_with(" s (a firewall?) (from node1)")) << silent;
  EXPECT_EQ(news(ChildEvent::Kind::kLost, kOther)
                ->text.find("host node3: its agent connected, but sent no message within "),
            0U);
}

TEST_F(NodeRelay, AChildThatSpeaksForOthersIsEnded) {
  start({kRelayChild, kOther});
  link(kRelayChild);
  link(kOther);
  below_[kRelayChild]->send(Relayed{{kOther}, encode(UserMessage{"I am another"})});
  ASSERT_TRUE(
      run_until(loop_, [this] { return news(ChildEvent::Kind::kLost, kRelayChild) != nullptr; }));
  EXPECT_TRUE(heard(kOther).empty());
  EXPECT_EQ(news(ChildEvent::Kind::kLost, kOther), nullptr);
}

TEST_F(NodeRelay, ASilentChildAndItsRecoveryAreReported) {
  start({kRelayChild});
  link(kRelayChild);
  below_[kRelayChild]->send(UserMessage{"first"});
  ASSERT_TRUE(
      run_until(loop_, [this] { return news(ChildEvent::Kind::kSilent, kRelayChild) != nullptr; }));
  EXPECT_EQ(news(ChildEvent::Kind::kRecovered, kRelayChild), nullptr);
  below_[kRelayChild]->send(Heartbeat{});
  ASSERT_TRUE(run_until(
      loop_, [this] { return news(ChildEvent::Kind::kRecovered, kRelayChild) != nullptr; }));
  EXPECT_EQ(news(ChildEvent::Kind::kLost, kRelayChild), nullptr);
}

// A controller that does not read makes the children wait instead of growing the relay's queue;
// nothing is lost.
TEST_F(NodeRelay, ChildrenWaitWhileTheUplinkIsFull) {
  start({kRelayChild});
  link(kRelayChild);
  controller_->pause();
  const std::string piece(256 << 10, 'x');
  constexpr std::size_t kPieces = 120;  // 30 MiB, more than all sockets on the way hold
  for (std::size_t i = 0; i < kPieces; ++i) below_[kRelayChild]->send(UserMessage{piece});
  std::size_t most = 0;
  const auto full = [&] { return (most = std::max(most, uplink_->queued())) > Relay::kMostQueued; };
  ASSERT_TRUE(run_until(loop_, full));
  for (int turn = 0; turn < 500; ++turn) {  // in which the child goes on, if it may
    loop_.run_one_for(std::chrono::milliseconds(1));
    static_cast<void>(full());
  }
  EXPECT_LT(most, Relay::kMostQueued + 2 * piece.size());
  EXPECT_GT(below_[kRelayChild]->queued(), 0U);
  controller_->resume();
  const auto relayed = [](const Message& message) {
    return std::holds_alternative<Relayed>(message);
  };
  EXPECT_TRUE(run_until(loop_, [&] {
    return static_cast<std::size_t>(std::ranges::count_if(from_relay_, relayed)) >= kPieces;
  }));
  EXPECT_EQ(heard(kRelayChild).size(), kPieces);
}

TEST_F(NodeRelay, TheSecretReachesAChildOnItsInput) {
  start({kRelayChild});
  link(kRelayChild);
  bool left = false;
  relay_->when_empty([&left] { left = true; });
  EXPECT_FALSE(left);
  controller_->send(EndAgent{kRelayChild});
  ASSERT_TRUE(run_until(loop_, [&left] { return left; }));
  std::ostringstream got;
  got << std::ifstream(folder_ / "secret.2").rdbuf();
  EXPECT_EQ(got.str().size(), transport::JobSecret::kMessageBytes);
}

}  // namespace
}  // namespace regroup::agent
