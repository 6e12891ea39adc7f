// An agent below another one, over real connections. The test plays its parent, which is lost, and
// the controller.
#include "launcher/agent/uplink.h"

#include <gtest/gtest.h>

#include "launcher/agent/wire.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using transport::run_until;
using transport::SecureChannel;

constexpr proto::NodeId kController = 0, kSelf = 1, kParent = 2, kBelow = 5;

class NodeUplink : public testing::Test {
 protected:
  struct Door {
    Door(boost::asio::io_context& loop, const std::shared_ptr<const transport::JobSecret>& secret,
         proto::NodeId self)
        : listener(loop, transport::node(secret, self),
                   [this](std::shared_ptr<SecureChannel> channel) {
                     link = std::make_unique<Link>(
                         std::move(channel),
                         Link::Handlers{[this](const Message& message) {
                                          if (!std::holds_alternative<Heartbeat>(message))
                                            came.push_back(message);
                                        },
                                        [](const base::Status&) {}});
                   }) {
      EXPECT_TRUE(listener.start(0).ok());
    }
    // The messages of the agent, with their numbers.
    [[nodiscard]] std::vector<std::string> said() const {
      std::vector<std::string> out;
      for (const Message& message : came) {
        const auto* relayed = std::get_if<Relayed>(&message);
        if (relayed == nullptr) continue;
        EXPECT_EQ(relayed->nodes, std::vector<proto::NodeId>{kSelf});
        const auto text = decode(relayed->message);
        EXPECT_TRUE(text.ok());
        out.push_back(std::get<UserMessage>(*text).text + std::to_string(relayed->numbers.at(0)));
      }
      return out;
    }
    std::unique_ptr<Link> link;
    std::vector<Message> came;
    transport::SecureListener listener;
  };

  std::shared_ptr<SecureChannel> connect(proto::NodeId to, std::uint16_t port) {
    auto channel = SecureChannel::client(loop_, transport::node(secret_, kSelf),
                                         transport::connect_to(port), to, Link::limits());
    EXPECT_TRUE(channel.ok());
    (*channel)->start({.message = {}, .closed = [](const base::Status&) {}});
    return *channel;
  }
  [[nodiscard]] std::size_t heard() const { return heard_.size(); }
  [[nodiscard]] std::string text(std::size_t at) const {
    return std::get<UserMessage>(heard_.at(at)).text;
  }

  boost::asio::io_context loop_;
  std::shared_ptr<const transport::JobSecret> secret_ = transport::new_secret();
  Door parent_{loop_, secret_, kParent}, controller_{loop_, secret_, kController};
  std::vector<Message> heard_;
  int closed_ = 0;
  Uplink uplink_{loop_, connect(kParent, parent_.listener.port()), kSelf, true,
                 Link::Handlers{[this](const Message& message) { heard_.push_back(message); },
                                [this](const base::Status&) { ++closed_; }}};
};

TEST_F(NodeUplink, MessagesThroughAParentAgentAreNumberedBothWays) {
  uplink_.send(UserMessage{"a"});
  uplink_.send(UserMessage{"b"});
  ASSERT_TRUE(run_until(loop_, [this] { return parent_.came.size() == 2; }));
  EXPECT_EQ(parent_.said(), (std::vector<std::string>{"a1", "b2"}));
  parent_.link->send(Relayed{{kSelf, kBelow}, encode(UserMessage{"to both"}), false, {1, 7}});
  ASSERT_TRUE(run_until(loop_, [this] { return heard() == 2; }));
  const auto& others = std::get<Relayed>(heard_[0]);
  EXPECT_EQ(others.nodes, std::vector<proto::NodeId>{kBelow});
  EXPECT_EQ(others.numbers, std::vector<std::uint64_t>{7});
  EXPECT_EQ(text(1), "to both");
}

TEST_F(NodeUplink, ContinuesWithTheControllerAfterTheLossOfItsParent) {
  uplink_.send(UserMessage{"a"});
  uplink_.send(UserMessage{"b"});
  ASSERT_TRUE(run_until(loop_, [this] { return parent_.came.size() == 2; }));
  parent_.link->send(Relayed{{kSelf}, encode(UserMessage{"one"}), false, {1}});
  ASSERT_TRUE(run_until(loop_, [this] { return heard() == 1; }));
  parent_.link->close();
  ASSERT_TRUE(run_until(loop_, [this] { return closed_ == 1; }));
  EXPECT_TRUE(uplink_.below());
  uplink_.send(UserMessage{"c"});  // nobody hears it yet
  bool adopted = false;
  uplink_.on_reparented([&] { adopted = true; });
  uplink_.reparent(connect(kController, controller_.listener.port()));
  uplink_.send(UserMessage{"d"});
  EXPECT_FALSE(uplink_.open());
  ASSERT_TRUE(run_until(loop_, [this] { return !controller_.came.empty(); }));
  const auto& first = std::get<Ack>(controller_.came.at(0));
  EXPECT_EQ(first.action, Ack::Action::kReparent);
  EXPECT_EQ(first.number, 1U);
  controller_.link->send(Ack{1, Ack::Action::kRetransmit});  // "a" had come
  controller_.link->send(Relayed{{kSelf}, encode(UserMessage{"one"}), false, {1}});
  controller_.link->send(Relayed{{kSelf}, encode(UserMessage{"two"}), false, {2}});
  ASSERT_TRUE(run_until(loop_, [this] { return controller_.came.size() == 4 && heard() == 2; }));
  EXPECT_EQ(controller_.said(), (std::vector<std::string>{"b2", "c3", "d4"}));
  EXPECT_EQ(text(1), "two") << "what was heard before is not heard again";
  EXPECT_TRUE(adopted && uplink_.open());
  EXPECT_FALSE(uplink_.below());
}

TEST_F(NodeUplink, InvalidBytesEndTheLink) {
  ASSERT_TRUE(run_until(loop_, [this] { return parent_.link != nullptr; }));
  parent_.link->send(Relayed{{kSelf}, std::vector<std::byte>(8), false, {1}});
  ASSERT_TRUE(run_until(loop_, [this] { return closed_ == 1; }));
  EXPECT_FALSE(uplink_.open());
}

}  // namespace
}  // namespace regroup::agent
