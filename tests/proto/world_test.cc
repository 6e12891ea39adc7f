// Positions, shares and owners of leaves.
#include "proto/world.h"

#include <gtest/gtest.h>

namespace regroup::proto {
namespace {

World world_of(std::uint32_t size, std::uint32_t shards) {
  World world;
  world.generation = 3;
  world.resume = Position::of(7, 2);
  world.shards = shards;
  for (std::uint32_t r = 0; r < size; ++r) {
    world.members.push_back({.id = 10 + r, .slot_id = {r / 2, static_cast<SlotIndex>(r % 2)}});
  }
  world.plan.assign(shards, world.members.back().slot_id);
  return world;
}

TEST(Position, OrdersStepsBeforeTheRegionsBehindThem) {
  EXPECT_LT(Position::of(4), Position::of(4, 1));
  EXPECT_LT(Position::of(4, 255), Position::of(5));
  EXPECT_EQ(Position::of(5).before(), Position::of(4, 255));
  EXPECT_EQ(Position::of(5, 1).before(), Position::of(5));
  EXPECT_EQ(Position::of(kMaxStep, 255).step(), kMaxStep);
  EXPECT_EQ(Position::of(kMaxStep, 255).section(), 255U);
  EXPECT_EQ(Position::of(kMaxStep, 255).value, (1ULL << 40) - 1);  // what a state word has room for
}

TEST(World, FindsRanksBySlotAndById) {
  const World world = world_of(3, 4);
  EXPECT_EQ(world.rank_of(SlotId{1, 0}), 2);
  EXPECT_EQ(world.rank_of(SlotId{1, 1}), -1);
  EXPECT_EQ(world.rank_of(MemberId{11}), 1);
  EXPECT_EQ(world.rank_of(MemberId{3}), -1);
}

TEST(World, SharesAreContiguousBalancedAndComplete) {
  for (std::uint32_t shards = 1; shards <= 40; ++shards) {
    for (std::uint32_t size = 1; size <= 48; ++size) {
      std::uint32_t next = 0;
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const Interval share = share_of_rank(shards, size, rank);
        ASSERT_EQ(share.begin, next);
        ASSERT_GE(share.size() + 1, (shards + size - 1) / size);
        ASSERT_LE(share.size(), (shards + size - 1) / size);
        next = share.end;
      }
      ASSERT_EQ(next, shards);
    }
  }
  EXPECT_EQ(share_of_rank(kMaxShards, kMaxShards, kMaxShards - 1),
            (Interval{kMaxShards - 1, kMaxShards}));
}

TEST(World, OwnersFollowThePlanOnceAndTheSharesAfterIt) {
  const World world = world_of(3, 8);
  EXPECT_EQ(owners_of(world, 8), world.plan);
  const std::vector<SlotId> later = owners_of(world, 9);
  ASSERT_EQ(later.size(), 8U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const Interval share = share_of_rank(8, 3, rank);
    for (std::uint32_t leaf = share.begin; leaf < share.end; ++leaf) {
      EXPECT_EQ(later[leaf], world.members[rank].slot_id) << leaf;
    }
  }
}

}  // namespace
}  // namespace regroup::proto
