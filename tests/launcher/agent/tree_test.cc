// Shape and routes of the tree of agents.
#include "launcher/agent/tree.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace regroup::agent {
namespace {

using Nodes = std::vector<proto::NodeId>;

// 1 and 2 below the root, 3 and 4 below 1, 5 below 2, 6 below 3: what parent_in_row() makes of six,
// radix 2, but for the last.
Tree example() {
  Tree tree(0);
  for (const auto& [node, parent] : {std::pair{1, 0}, {2, 0}, {3, 1}, {4, 1}, {5, 2}, {6, 3}})
    EXPECT_TRUE(tree.add(static_cast<proto::NodeId>(node), static_cast<proto::NodeId>(parent)));
  return tree;
}

TEST(NodeTree, RowsMakeTreesOfTheRadix) {
  constexpr struct {
    std::size_t index, radix;
    int parent;  // -1: the root
  } kRows[] = {{0, 2, -1},   {1, 2, -1},   {2, 2, 0},   {3, 2, 0},      {4, 2, 1},     {5, 2, 1},
               {6, 2, 2},    {0, 1, -1},   {1, 1, 0},   {2, 1, 1},      {63, 64, -1},  {64, 64, 0},
               {127, 64, 0}, {128, 64, 1}, {99, 0, -1}, {4159, 64, 63}, {4160, 64, 64}};
  for (const auto& row : kRows) {
    const auto parent = parent_in_row(row.index, row.radix);
    EXPECT_EQ(parent ? static_cast<int>(*parent) : -1, row.parent)
        << row.index << " of radix " << row.radix;
  }
}

TEST(NodeTree, HasAtMostRadixChildrenAndTheLeastDepth) {
  for (const std::size_t radix : {1U, 2U, 3U, 64U}) {
    Tree tree(0);
    const std::size_t count = radix == 1 ? 50 : 10'000;
    for (std::size_t i = 0; i < count; ++i) {
      const auto parent = parent_in_row(i, radix);
      ASSERT_TRUE(tree.add(static_cast<proto::NodeId>(i + 1),
                           static_cast<proto::NodeId>(parent ? *parent + 1 : 0)));
    }
    std::size_t room = 0, level = 1, depth = 0;
    for (; room < count; ++depth) room += level *= radix;
    EXPECT_EQ(tree.depth(static_cast<proto::NodeId>(count)), depth);
    for (const proto::NodeId node : tree.below(0)) EXPECT_LE(tree.children(node).size(), radix);
    EXPECT_EQ(tree.below(0).size(), count + 1);
  }
}

TEST(NodeTree, AMessageGoesDownTheBranchThatHoldsItsNode) {
  const Tree tree = example();
  EXPECT_EQ(tree.next_hop(0, 6), 1U);
  EXPECT_EQ(tree.next_hop(1, 6), 3U);
  EXPECT_EQ(tree.next_hop(3, 6), 6U);
  EXPECT_EQ(tree.next_hop(0, 5), 2U);
  EXPECT_EQ(tree.next_hop(2, 6), std::nullopt);
  EXPECT_EQ(tree.next_hop(6, 6), std::nullopt);
  EXPECT_EQ(tree.next_hop(0, 99), std::nullopt);
  EXPECT_EQ(tree.depth(6), 3U);
  EXPECT_EQ(tree.depth(0), 0U);
}

TEST(NodeTree, ANodeIsInItsOwnSubtreeAndThoseAbove) {
  const Tree tree = example();
  for (const proto::NodeId top : {0U, 1U, 3U, 6U}) EXPECT_TRUE(tree.within(6, top)) << top;
  for (const proto::NodeId top : {2U, 4U, 5U, 99U}) EXPECT_FALSE(tree.within(6, top)) << top;
  EXPECT_FALSE(tree.within(1, 6));
  EXPECT_FALSE(tree.within(99, 0));
}

TEST(NodeTree, AnOrphanKeepsItsSubtree) {
  Tree tree = example();
  tree.remove(1);
  EXPECT_FALSE(tree.has(1));
  EXPECT_EQ(tree.children(0), (Nodes{2}));
  EXPECT_EQ(tree.parent(3), std::nullopt);
  EXPECT_EQ(tree.next_hop(0, 6), std::nullopt);
  EXPECT_EQ(tree.depth(6), std::nullopt);
  EXPECT_EQ(tree.below(3), (Nodes{3, 6}));
  EXPECT_TRUE(tree.move(3, 0));
  EXPECT_EQ(tree.next_hop(0, 6), 3U);
  EXPECT_EQ(tree.depth(6), 2U);
  EXPECT_EQ(tree.next_hop(0, 4), std::nullopt) << "4 has not been moved";
}

TEST(NodeTree, PruningRemovesTheWholeSubtree) {
  Tree tree = example();
  tree.prune(1);
  EXPECT_EQ(tree.below(0), (Nodes{0, 2, 5}));
  for (const proto::NodeId node : {1U, 3U, 4U, 6U}) EXPECT_FALSE(tree.has(node));
}

TEST(NodeTree, RefusesParentsThatMakeNoTree) {
  Tree tree = example();
  EXPECT_FALSE(tree.add(3, 0)) << "it is there";
  EXPECT_FALSE(tree.add(7, 99)) << "no such parent";
  EXPECT_FALSE(tree.has(7));
  EXPECT_FALSE(tree.move(1, 6)) << "a circle";
  EXPECT_FALSE(tree.move(1, 1));
  EXPECT_FALSE(tree.move(99, 0));
  EXPECT_EQ(tree.next_hop(0, 6), 1U);
}

}  // namespace
}  // namespace regroup::agent
