// Routing in an agent, down and up: 1 is the agent, 2 and 3 are its children, 4 and 5 are below 2,
// 6 is below 5.
#include "launcher/agent/router.h"

#include <gtest/gtest.h>

#include <set>

#include "launcher/agent/wire.h"

namespace regroup::agent {
namespace {

using Nodes = std::vector<proto::NodeId>;

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    Tree& tree = router_.tree();
    for (const auto& [node, parent] : std::vector<std::pair<proto::NodeId, proto::NodeId>>{
             {2, 1}, {3, 1}, {4, 2}, {5, 2}, {6, 5}})
      EXPECT_TRUE(tree.add(node, parent));
  }

  static Message report(proto::Generation g) { return Membership{{1, proto::Report{g, {}}}}; }
  static Message lost() { return Membership{{1, proto::MemberLost{.member = 1}}}; }
  static Message from(proto::NodeId node, const Message& message) {
    return Relayed{{node}, encode(message), is_answer(message)};
  }
  void ask(const Nodes& nodes) {
    (void)router_.relay({nodes, encode(Membership{{1, proto::Revoke{1}}}), true});
  }
  // The nodes of each message that goes up.
  std::vector<Nodes> up(proto::NodeId child, const Message& message) {
    auto said = router_.up(child, message);
    EXPECT_TRUE(said);
    return said ? nodes_of(*said) : std::vector<Nodes>{};
  }
  static std::vector<Nodes> nodes_of(const std::vector<Message>& messages) {
    std::vector<Nodes> out;
    for (const Message& message : messages) {
      Nodes& nodes = out.emplace_back();
      if (const auto* one = std::get_if<Relayed>(&message)) nodes = one->nodes;
      if (const auto* many = std::get_if<Gathered>(&message)) {
        for (const Relayed& one : many->messages) nodes.push_back(one.nodes.at(0));
      }
    }
    return out;
  }

  Router router_{1};
};

TEST_F(RouterTest, EachChildGetsOneFrameThatListsTheNodesBelow) {
  const std::vector<std::byte> message = encode(Membership{{1, proto::Revoke{1}}});
  const Nodes all{2, 3, 4, 6, 7};
  const auto frames = router_.down(all, message, true);
  ASSERT_EQ(frames.size(), 3U);  // to 2 for itself and for those below, to 3
  EXPECT_EQ(frames[0].child, 2U);
  EXPECT_EQ(*frames[0].bytes, message);
  const auto wrapped = decode(*frames[1].bytes);
  ASSERT_TRUE(wrapped.ok());
  EXPECT_EQ(std::get<Relayed>(*wrapped).nodes, (Nodes{4, 6}));
  EXPECT_TRUE(std::get<Relayed>(*wrapped).answered);
  EXPECT_EQ(std::get<Relayed>(*wrapped).message, message);
  EXPECT_EQ(frames[2].child, 3U);
  EXPECT_EQ(frames[2].bytes, frames[0].bytes) << "one copy for all";
}

TEST_F(RouterTest, SessionNumbersTravelWithEachNode) {
  const std::vector<std::byte> message = encode(Membership{{1, proto::Revoke{1}}});
  const auto frames =
      router_.down(Nodes{2, 4, 3, 6}, message, true, std::vector<std::uint64_t>{0, 9, 8, 7});
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(*frames[0].bytes, message) << "2 has no number";
  const auto through_2 = decode(*frames[1].bytes), to_3 = decode(*frames[2].bytes);
  ASSERT_TRUE(through_2.ok() && to_3.ok());
  EXPECT_EQ(std::get<Relayed>(*through_2).nodes, (Nodes{4, 6}));
  EXPECT_EQ(std::get<Relayed>(*through_2).numbers, (std::vector<std::uint64_t>{9, 7}));
  EXPECT_EQ(std::get<Relayed>(*to_3).nodes, (Nodes{3}));
  EXPECT_EQ(std::get<Relayed>(*to_3).numbers, (std::vector<std::uint64_t>{8}));
  EXPECT_FALSE(router_.up(2, Relayed{{2}, message})) << "an envelope for itself has a number";
  EXPECT_TRUE(router_.up(2, Relayed{{2}, message, false, {1}}));
}

TEST_F(RouterTest, RepliesGoUpTogetherAfterTheLast) {
  ask({2, 3, 4, 5, 6});
  EXPECT_EQ(up(3, report(1)), std::vector<Nodes>{});
  EXPECT_EQ(up(2, report(1)), std::vector<Nodes>{});
  EXPECT_EQ(up(2, Gathered{{std::get<Relayed>(from(4, report(1))),
                            std::get<Relayed>(from(5, report(1)))}}),
            std::vector<Nodes>{});
  EXPECT_EQ(up(2, from(6, report(1))), (std::vector<Nodes>{{3, 2, 4, 5, 6}}));
  EXPECT_EQ(up(3, report(1)), (std::vector<Nodes>{{3}})) << "nobody had asked";
}

TEST_F(RouterTest, OtherMessagesDoNotWaitAndDoNotOvertakeAReply) {
  ask({2, 3});
  EXPECT_EQ(up(2, lost()), (std::vector<Nodes>{{2}})) << "it has not answered yet";
  EXPECT_EQ(up(2, report(1)), std::vector<Nodes>{});
  EXPECT_EQ(up(2, lost()), (std::vector<Nodes>{{2}, {2}})) << "its answer was first";
  EXPECT_EQ(up(3, report(1)), (std::vector<Nodes>{{3}}));
}

TEST_F(RouterTest, RepliesOfLostNodesAreNotAwaited) {
  ask({2, 3, 4, 5, 6});
  (void)up(3, report(1));
  EXPECT_EQ(nodes_of(router_.lose(2)), (std::vector<Nodes>{{3}}));
  EXPECT_FALSE(router_.tree().has(6));
}

// A question to the agent itself is for no node below it.
TEST_F(RouterTest, TheReplyOfTheAgentItselfIsNotAwaited) {
  ask({1, 2, 3});
  (void)up(2, report(1));
  EXPECT_EQ(up(3, report(1)), (std::vector<Nodes>{{2, 3}}));
}

TEST_F(RouterTest, ASecondQuestionIsAnsweredToo) {
  ask({2, 3});
  (void)up(2, report(1));
  ask({2, 3});
  (void)up(3, report(1));
  EXPECT_EQ(up(2, report(2)), (std::vector<Nodes>{{2, 3, 2}}));
}

TEST_F(RouterTest, AChildThatSpeaksForOthersIsRefused) {
  EXPECT_FALSE(router_.up(3, from(4, report(1))));
  EXPECT_FALSE(router_.up(3, from(3, report(1))));
  EXPECT_FALSE(router_.up(
      2, Gathered{{std::get<Relayed>(from(4, report(1))), std::get<Relayed>(from(3, report(1)))}}));
  EXPECT_FALSE(router_.up(2, Relayed{{4, 5}, encode(report(1)), true})) << "one at a time";
  EXPECT_TRUE(router_.up(2, from(9, lost()))) << "given up, but its words were on their way";
}

TEST(NodeWire, GatheredComesThrough) {
  const Gathered gathered{
      {{{4}, {std::byte{1}}, true}, {{5}, {std::byte{2}, std::byte{3}}, false}}};
  const auto read = decode(encode(gathered));
  ASSERT_TRUE(read.ok());
  const auto& out = std::get<Gathered>(*read).messages;
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[1].nodes, (Nodes{5}));
  EXPECT_EQ(out[1].message, gathered.messages[1].message);
  EXPECT_TRUE(out[0].answered);
  EXPECT_FALSE(out[1].answered);
  EXPECT_FALSE(decode(encode(Gathered{{{{}, {}, true}}})).ok()) << "of nobody";
}

}  // namespace
}  // namespace regroup::agent
