// A message to many nodes crosses a link once, and no node's messages are reordered.
#include "launcher/agent/multicast_batch.h"

#include <gtest/gtest.h>

#include <utility>

#include "launcher/agent/wire.h"

namespace regroup::agent {
namespace {

class MulticastBatchTest : public testing::Test {
 protected:
  using Sent = std::vector<std::pair<proto::NodeId, Relayed>>;

  // The messages to `node`, in order.
  [[nodiscard]] std::vector<std::string> said_to(proto::NodeId node) const {
    std::vector<std::string> out;
    for (const auto& [via, relayed] : sent_) {
      for (const proto::NodeId each : relayed.nodes) {
        if (each == node) out.push_back(std::get<UserMessage>(*decode(relayed.message)).text);
      }
    }
    return out;
  }

  boost::asio::io_context loop_;
  Sent sent_;
  MulticastBatch batch_{loop_, [this](proto::NodeId via, const Relayed& relayed) {
                          sent_.emplace_back(via, relayed);
                        }};
};

TEST_F(MulticastBatchTest, EqualMessagesBecomeOnePerChild) {
  for (const proto::NodeId node : {10U, 11U, 12U}) batch_.add(1, node, encode(UserMessage{"all"}));
  batch_.add(2, 20, encode(UserMessage{"all"}));
  EXPECT_TRUE(sent_.empty());
  loop_.poll();
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[0].first, 1U);
  EXPECT_EQ(sent_[0].second.nodes, (std::vector<proto::NodeId>{10, 11, 12}));
  EXPECT_EQ(sent_[1].first, 2U);
  EXPECT_EQ(sent_[1].second.nodes, (std::vector<proto::NodeId>{20}));
}

TEST_F(MulticastBatchTest, EachNodeGetsItsMessagesInOrder) {
  for (const char* text : {"a", "b", "a", "a"}) {
    for (const proto::NodeId node : {10U, 11U}) batch_.add(1, node, encode(UserMessage{text}));
  }
  batch_.add(1, 10, encode(UserMessage{"c"}));
  loop_.poll();
  EXPECT_EQ(said_to(10), (std::vector<std::string>{"a", "b", "a", "a", "c"}));
  EXPECT_EQ(said_to(11), (std::vector<std::string>{"a", "b", "a", "a"}));
  EXPECT_EQ(sent_.size(), 5U);
}

TEST_F(MulticastBatchTest, NothingIsSentAfterDestruction) {
  {
    MulticastBatch other(loop_, [](proto::NodeId, const Relayed&) { FAIL(); });
    other.add(1, 10, encode(UserMessage{"late"}));
  }
  loop_.poll();
}

}  // namespace
}  // namespace regroup::agent
