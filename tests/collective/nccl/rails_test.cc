// Which ranks form the communicators of a World, and which nodes of the tree a host holds.
#include "collective/nccl/rails.h"

#include <gtest/gtest.h>

namespace regroup::collective::nccl {
namespace {

using Ranks = std::vector<std::vector<int>>;
using Nodes = std::vector<proto::Interval>;

proto::World world_of(const std::vector<proto::NodeId>& nodes) {
  proto::World world;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    world.members.push_back({.id = static_cast<proto::MemberId>(10 + rank),
                             .slot_id = {nodes[rank], static_cast<proto::SlotIndex>(rank)}});
  return world;
}

TEST(Rails, HaveOneRankOfEachHost) {
  const auto rails = rails_of(world_of({7, 7, 3, 3}), {"a", "b", "a", "b"});
  EXPECT_EQ(rails.ranks, (Ranks{{0, 2}, {1, 3}}));
  EXPECT_EQ(rails.host_of, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(rails.hosts(), 2);
  EXPECT_EQ(rails.rail_of(3), 1);
}

TEST(Rails, AreAsManyAsTheFewestGpusOfAHost) {
  const auto rails = rails_of(world_of({1, 2, 1, 1}), {"a", "a", "b", "c"});
  EXPECT_EQ(rails.ranks, (Ranks{{0, 1}}));
  EXPECT_EQ(rails.rail_of(2), std::nullopt);
}

TEST(Rails, TakeTheLowestRankOfAGpu) {
  const auto rails = rails_of(world_of({1, 1, 1, 2, 2, 2}), {"a", "a", "b", "x", "y", "y"});
  EXPECT_EQ(rails.ranks, (Ranks{{0, 3}, {2, 4}}));
  EXPECT_EQ(possible_leaders(world_of({1, 1, 1, 2}), {"a", "a", "b", ""}),
            (std::vector<int>{0, 2}));
}

TEST(Rails, AHostHoldsTheLargestNodesOfItsLeaves) {
  const proto::World world = world_of({1, 2});
  const auto hosts =
      hosts_of_leaves(world, {{1, 0}, {1, 9}, {1, 0}, {2, 1}, {2, 1}, {2, 1}, {2, 1}});
  EXPECT_EQ(hosts, (std::vector<int>{0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(nodes_on(0, hosts, false), (Nodes{{0, 2}, {2, 3}}));
  EXPECT_EQ(nodes_on(1, hosts, false), (Nodes{{3, 4}, {4, 7}}));
  EXPECT_EQ(nodes_on(0, hosts, true), (Nodes{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(nodes_on(1, {0, 1, 0, 1}, false), (Nodes{{1, 2}, {3, 4}}));
  EXPECT_EQ(nodes_on(0, {0, 0, 0}, false), (Nodes{{0, 3}}));
}

}  // namespace
}  // namespace regroup::collective::nccl
