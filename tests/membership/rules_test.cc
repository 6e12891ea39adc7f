// Rules of the protocol model (tests/model/README.md) of which no other test is about: what a
// coordinator of several hosts waits for, and in which order it acts.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "membership/coordinator/coordinator.h"

namespace regroup::membership {
namespace {

using proto::Phase, proto::Position;
using Nodes = std::set<proto::NodeId>;

const base::TimePoint kRulesNow{std::chrono::seconds(5)};

proto::SlotReport slot_report(proto::MemberId id, Phase phase, Position at, bool alive = true) {
  return {.member = id, .slot = 0, .alive = alive, .state = {phase, false, 3, at}};
}

// A restarted coordinator whose journal says that World 3 is of member 4 on node 0 and member 5 on
// node 1.
class RulesTest : public testing::Test {
 protected:
  RulesTest() {
    const proto::World world{
        .incarnation = 1,
        .generation = 3,
        .resume = Position::of(7),
        .shards = 2,
        .members = {{.id = 4, .slot_id = {0, 0}}, {.id = 5, .slot_id = {1, 0}}},
        .plan = {{0, 0}, {1, 0}}};
    coordinator_.emplace(Policy{.shards = 2}, JobInfo{.nodes = {0, 1}}, 2,
                         JournaledState{.world = world});
    EXPECT_EQ(nodes_told<proto::Hello>(coordinator_->tick(kRulesNow)), (Nodes{0, 1}));
  }
  Effects from(proto::NodeId node, proto::Body body) {
    return coordinator_->handle(kRulesNow, {Sender::Kind::kAgent, node}, {2, std::move(body)});
  }
  template <class B>
  static Nodes nodes_told(const Effects& effects) {
    Nodes nodes;
    for (const Effect& e : effects) {
      const auto* send = std::get_if<ToAgent>(&e);
      if (send == nullptr || !std::holds_alternative<B>(send->body)) continue;
      if (send->node == proto::kEveryNode)
        nodes.insert({0, 1});
      else
        nodes.insert(send->node);
    }
    return nodes;
  }
  // Both agents agree with the journal but for what is said here.
  Effects hello(proto::Generation revoked_on_node_1) {
    const proto::HelloReply first{3, 0, {slot_report(4, Phase::kOpen, Position::of(8))}};
    EXPECT_EQ(nodes_told<proto::Revoke>(from(0, first)), Nodes{})
        << "before the other one answered";
    return from(1, proto::HelloReply{
                       3, revoked_on_node_1, {slot_report(5, Phase::kOpen, Position::of(8))}});
  }
  std::optional<Coordinator> coordinator_;
};

// hello, leasetold: an agent that closed its members, for whatever reason, says so.
TEST_F(RulesTest, OneAgentThatIsRevokedIsEnoughForARegroup) {
  EXPECT_EQ(nodes_told<proto::Revoke>(hello(3)), (Nodes{0, 1}));
}

TEST_F(RulesTest, AllAgreeAndNobodyIsDisturbed) {
  EXPECT_EQ(nodes_told<proto::Revoke>(hello(0)), Nodes{});
  EXPECT_EQ(coordinator_->world().generation, 3U);
}

// learn: the commit of a dead member counts, whichever living host tells of it.
TEST_F(RulesTest, AWorldIsFormedOfTheReportsOfAllHosts) {
  (void)hello(3);
  (void)from(0, proto::Report{3, {slot_report(4, Phase::kClosed, Position::of(8))}});
  EXPECT_EQ(coordinator_->world().generation, 3U) << "the report of node 1 is missing";
  (void)from(1, proto::Report{3, {slot_report(5, Phase::kCommitted, Position::of(8), false)}});
  EXPECT_GT(coordinator_->world().generation, 3U);
  EXPECT_EQ(coordinator_->world().resume, Position::of(8));
}

TEST_F(RulesTest, AnAgentSpeaksForItsOwnMembersOnly) {
  (void)hello(0);
  EXPECT_EQ(nodes_told<proto::Revoke>(
                from(0, proto::MemberLost{.member = 5, .joined = true, .signal = 9})),
            Nodes{});
  (void)from(0, proto::MemberDrained{5});
  EXPECT_EQ(nodes_told<proto::Revoke>(
                from(1, proto::MemberLost{.member = 5, .joined = true, .signal = 9})),
            (Nodes{0, 1}))
      << "it is as alive as before";
  (void)from(0, proto::Report{3,
                              {slot_report(4, Phase::kClosed, Position::of(8)),
                               slot_report(5, Phase::kCommitted, Position::of(90))}});
  (void)from(1, proto::Report{3, {slot_report(5, Phase::kClosed, Position::of(8), false)}});
  EXPECT_EQ(coordinator_->world().generation, 4U);
  EXPECT_EQ(coordinator_->world().resume.step(), 7U);
}

// A message has its limit, addresses of many members none.
TEST_F(RulesTest, AddressesOfManyGoInParts) {
  (void)hello(0);
  const proto::MemberAddress first{4, std::vector<std::byte>(300 << 10)},
      second{5, std::vector<std::byte>(300 << 10)};
  EXPECT_EQ(nodes_told<proto::PeerAddresses>(from(0, proto::PeerAddresses{3, {first}})), Nodes{});
  std::vector<proto::MemberAddress> told;
  for (const Effect& e : from(1, proto::PeerAddresses{3, {second}})) {
    const auto* send = std::get_if<ToAgent>(&e);
    const auto* part = send == nullptr ? nullptr : std::get_if<proto::PeerAddresses>(&send->body);
    if (part == nullptr) continue;
    EXPECT_EQ(part->generation, 3U);
    ASSERT_EQ(part->members.size(), 1U);
    told.push_back(part->members[0]);
  }
  EXPECT_EQ(told, (std::vector<proto::MemberAddress>{first, second}));
}

// jbefore
TEST_F(RulesTest, AWorldIsJournaledBeforeItIsAnnounced) {
  (void)hello(3);
  (void)from(0, proto::Report{3, {slot_report(4, Phase::kClosed, Position::of(8))}});
  const Effects effects =
      from(1, proto::Report{3, {slot_report(5, Phase::kClosed, Position::of(8))}});
  std::ptrdiff_t journaled = -1, announced = -1;
  for (const Effect& e : effects) {
    const auto at = &e - effects.data();
    const auto* write = std::get_if<Journal>(&e);
    const auto* send = std::get_if<ToAgent>(&e);
    if (write != nullptr && std::holds_alternative<proto::World>(write->entry)) journaled = at;
    const bool announces = send != nullptr && std::holds_alternative<proto::Announce>(send->body);
    if (announces && announced < 0) announced = at;
  }
  EXPECT_GE(journaled, 0);
  EXPECT_GT(announced, journaled);
}

}  // namespace
}  // namespace regroup::membership
