// AgentRoutes without a controller: which messages of agents are believed, and what survives the
// loss of a path.
#include "launcher/agent/agent_routes.h"

#include <gtest/gtest.h>

#include <variant>

#include "launcher/agent/wire.h"

namespace regroup::agent {
namespace {

using Verdict = AgentRoutes::Arrival::Verdict;

// The controller, its children 1 and 2, and 3 and 4 below 1, and 5 below 3.
class AgentRoutesTest : public testing::Test {
 protected:
  AgentRoutesTest() {
    routes_.add_child(1);
    routes_.add_child(2);
    EXPECT_TRUE(routes_.add_below(3, 1));
    EXPECT_TRUE(routes_.add_below(4, 1));
    EXPECT_TRUE(routes_.add_below(5, 3));
  }
  static Relayed from(proto::NodeId node, std::uint64_t number,
                      const Message& message = Heartbeat{}) {
    return {{node}, encode(message), false, {number}};
  }
  Verdict accept(proto::NodeId child, const Relayed& relayed) {
    return routes_.accept(child, relayed).verdict;
  }
  static ReliableSession::Bytes bytes(std::size_t size) {
    return std::make_shared<const std::vector<std::byte>>(size);
  }

  AgentRoutes routes_;
};

TEST_F(AgentRoutesTest, AMessageGoesByTheChildOnItsPath) {
  EXPECT_EQ(routes_.via(2), 2U);
  EXPECT_EQ(routes_.via(5), 1U);
  EXPECT_FALSE(routes_.via(9));
  EXPECT_EQ(routes_.agent_above(5), 3U);
  EXPECT_EQ(routes_.agent_above(3), 1U);
  EXPECT_FALSE(routes_.agent_above(1));
  EXPECT_FALSE(routes_.add_below(6, 9)) << "no such parent";
  EXPECT_FALSE(routes_.has_session(6));
}

TEST_F(AgentRoutesTest, OnlyAgentsBelowOthersHaveASession) {
  EXPECT_EQ(routes_.number(1, bytes(1), false), 0U);
  EXPECT_EQ(routes_.number(9, bytes(1), false), 0U) << "unknown";
  EXPECT_EQ(routes_.number(3, bytes(1), false), 1U);
  EXPECT_EQ(routes_.number(3, bytes(1), false), 2U);
  EXPECT_EQ(routes_.session(3)->unacked().size(), 2U);
  EXPECT_TRUE(routes_.acknowledge(3, 1));
  EXPECT_EQ(routes_.session(3)->unacked().size(), 1U);
  EXPECT_FALSE(routes_.acknowledge(1, 1));
}

TEST_F(AgentRoutesTest, AnAgentThatAcknowledgesNothingGetsNoMoreNumbers) {
  const auto large = bytes(ReliableSession::kMaxUnackedBytes);
  EXPECT_EQ(routes_.number(3, large, false), 1U);
  EXPECT_EQ(routes_.number(3, bytes(1), false), 2U);
  EXPECT_FALSE(routes_.number(3, bytes(1), false));
  EXPECT_EQ(routes_.session(3)->unacked().size(), 2U);
}

TEST_F(AgentRoutesTest, EachNumberIsTakenOnceAndInOrder) {
  const auto first = routes_.accept(1, from(3, 1));
  EXPECT_EQ(first.verdict, Verdict::kTake);
  EXPECT_EQ(first.node, 3U);
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(*first.message));
  EXPECT_FALSE(first.ack);
  EXPECT_EQ(accept(1, from(3, 1)), Verdict::kIgnore);
  EXPECT_EQ(accept(1, from(3, 3)), Verdict::kIgnore) << "2 is missing";
  for (std::uint64_t number = 2; number < ReliableSession::kAckMessages; ++number)
    EXPECT_FALSE(routes_.accept(1, from(3, number)).ack);
  EXPECT_EQ(routes_.accept(1, from(3, ReliableSession::kAckMessages)).ack,
            ReliableSession::kAckMessages);
}

TEST_F(AgentRoutesTest, OnlyAcksOfAgentsBelowGoWithoutANumber) {
  EXPECT_EQ(accept(1, from(3, 0, Ack{7})), Verdict::kTake);
  const auto plain = routes_.accept(1, from(3, 0));
  EXPECT_EQ(plain.verdict, Verdict::kRefuse);
  EXPECT_EQ(plain.node, 3U) << "its own fault";
}

TEST_F(AgentRoutesTest, AnAgentThatSpeaksForOneThatIsNotBelowItIsRefused) {
  const auto forged = routes_.accept(2, from(3, 1));
  EXPECT_EQ(forged.verdict, Verdict::kRefuse);
  EXPECT_EQ(forged.node, 2U) << "the one that sent it";
  EXPECT_EQ(accept(1, {{3, 4}, encode(Heartbeat{}), false, {1, 1}}), Verdict::kRefuse);
  EXPECT_EQ(accept(1, from(1, 1)), Verdict::kRefuse) << "it has no session";
  EXPECT_EQ(accept(1, from(9, 1)), Verdict::kIgnore) << "given up, or unknown";
  Relayed garbage = from(3, 1);
  garbage.message = {std::byte{1}};
  EXPECT_EQ(accept(1, garbage), Verdict::kRefuse);
}

TEST_F(AgentRoutesTest, AfterALossTheSessionsGoOnByTheNewPath) {
  EXPECT_EQ(accept(1, from(5, 1)), Verdict::kTake);
  EXPECT_EQ(routes_.number(5, bytes(8), false), 1U);
  EXPECT_EQ(routes_.change_path(3), (std::vector<proto::NodeId>{3, 5}));
  routes_.detach(3);
  routes_.prune(1);
  EXPECT_FALSE(routes_.via(5));
  EXPECT_EQ(routes_.number(5, bytes(8), false), 2U) << "kept until there is a path";
  EXPECT_EQ(accept(2, from(5, 2)), Verdict::kIgnore) << "late, not forged";
  EXPECT_EQ(routes_.adopt(3), (std::vector<proto::NodeId>{3, 5}));
  EXPECT_EQ(routes_.via(5), 3U);
  EXPECT_EQ(routes_.session(5)->accepted(), 1U);
  EXPECT_EQ(routes_.session(5)->unacked().size(), 2U);
  EXPECT_EQ(accept(3, from(5, 1)), Verdict::kIgnore) << "retransmitted, and taken before";
  EXPECT_EQ(accept(3, from(5, 2)), Verdict::kTake);
  EXPECT_EQ(accept(3, from(3, 1)), Verdict::kTake);
  EXPECT_EQ(accept(3, from(3, 0, Ack{0})), Verdict::kRefuse) << "it has a connection of its own";
}

TEST_F(AgentRoutesTest, APathThatChangedIsRememberedForTheAgentsBelowOnly) {
  (void)routes_.change_path(3);
  EXPECT_TRUE(routes_.path_has_changed(3));
  EXPECT_TRUE(routes_.path_has_changed(5));
  EXPECT_FALSE(routes_.path_has_changed(4));
  EXPECT_EQ(accept(2, from(4, 1)), Verdict::kRefuse);
  routes_.forget(3);
  EXPECT_FALSE(routes_.path_has_changed(3));
  EXPECT_FALSE(routes_.has_session(3));
  EXPECT_EQ(accept(1, from(3, 1)), Verdict::kIgnore);
}

}  // namespace
}  // namespace regroup::agent
