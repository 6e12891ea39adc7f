// Messages of any size over a real connection; what is none ends it.
#include "launcher/agent/link.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/launcher/transport/net_test.h"

namespace regroup::agent {
namespace {

using transport::kClient;
using transport::kServer;
using transport::run_until;

class NodeLink : public testing::Test {
 protected:
  NodeLink()
      : secret_(transport::new_secret()),
        listener_(loop_, transport::node(secret_, kServer),
                  [this](std::shared_ptr<transport::SecureChannel> channel) {
                    controller_ = std::make_unique<Link>(std::move(channel), handlers());
                  }) {
    EXPECT_TRUE(listener_.start(0).ok());
    channel_ = transport::SecureChannel::client(loop_, transport::node(secret_, kClient),
                                                transport::connect_to(listener_.port()), kServer)
                   .value();
    channel_->start({.message = {}, .closed = [](const base::Status&) {}});
  }

  Link::Handlers handlers() {
    return {[this](const Message& message) { received_.push_back(message); },
            [this](const base::Status& why) { closed_ = why; }};
  }

  boost::asio::io_context loop_;
  std::shared_ptr<const transport::JobSecret> secret_;
  std::unique_ptr<Link> controller_;
  transport::SecureListener listener_;
  std::shared_ptr<transport::SecureChannel> channel_;
  std::vector<Message> received_;
  std::optional<base::Status> closed_;
};

TEST_F(NodeLink, LargeAndSmallMessagesArriveInOrder) {
  Link agent(channel_, {[](const Message&) {}, [](const base::Status&) {}});
  const std::string large(3 << 20, 'x');
  agent.send(UserMessage{large});
  agent.send(Heartbeat{});
  ASSERT_TRUE(run_until(loop_, [this] { return received_.size() == 2; }));
  EXPECT_TRUE(std::get<UserMessage>(received_[0]).text == large);
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(received_[1]));
}

TEST_F(NodeLink, NothingIsDeliveredWhilePaused) {
  Link agent(channel_, {[](const Message&) {}, [](const base::Status&) {}});
  agent.send(UserMessage{"first"});
  ASSERT_TRUE(run_until(loop_, [this] { return received_.size() == 1; }));
  controller_->pause();
  agent.send(UserMessage{"second"});
  EXPECT_FALSE(run_until(
      loop_, [this] { return received_.size() > 1; }, std::chrono::milliseconds(100)));
  std::vector<std::string> later;
  controller_->set_handlers(
      {[&](const Message& message) { later.push_back(std::get<UserMessage>(message).text); },
       [](const base::Status&) {}});
  controller_->resume();
  EXPECT_TRUE(run_until(loop_, [&] { return later.size() == 1; }));
}

TEST_F(NodeLink, BytesThatAreNoMessageEndIt) {
  const std::array<std::byte, 5> none{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3},
                                      std::byte{4}};
  channel_->send_payload(none);
  ASSERT_TRUE(run_until(loop_, [this] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code(), base::Code::kDataLoss);
  EXPECT_TRUE(received_.empty());
}

TEST_F(NodeLink, AMessageWithoutEndEndsIt) {
  std::vector<std::byte> part(1 << 19, std::byte{1});
  ASSERT_TRUE(run_until(loop_, [this] { return controller_ != nullptr; }));
  for (std::size_t sent = 0; sent <= Link::kMostBytes && !closed_; sent += part.size()) {
    channel_->send_payload(part);
    ASSERT_TRUE(run_until(loop_, [this] { return channel_->queued() == 0 || closed_; }));
  }
  ASSERT_TRUE(run_until(loop_, [this] { return closed_.has_value(); }));
  EXPECT_EQ(closed_->code(), base::Code::kDataLoss);
}

}  // namespace
}  // namespace regroup::agent
