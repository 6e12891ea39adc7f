// Placement of ranges in shards and of shards on servers: pure.
#include "collective/ps/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace regroup::collective::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint64_t> spread(const std::vector<std::uint32_t>& placed, std::size_t shards) {
  std::vector<std::uint64_t> out(shards);
  for (const std::uint32_t shard : placed) ++out[shard];
  return out;
}

TEST(PlaceRanges, SpreadsATableAndFillsTheEmptiestShardFirst) {
  const std::vector<std::uint64_t> sixteen(16, 100);
  const auto placed = place_ranges(sixteen, {{500, 1}, {0, 0}, {0, 4}});
  EXPECT_THAT(spread(placed, 3), ElementsAre(5, 6, 5));
  EXPECT_EQ(placed[0], 1U);
  EXPECT_THAT(place_ranges(std::vector<std::uint64_t>{7}, {{500, 1}, {300, 9}, {400, 0}}),
              ElementsAre(1));
  EXPECT_THAT(place_ranges(std::vector<std::uint64_t>{7}, {{5, 2}, {5, 1}, {5, 1}}),
              ElementsAre(1));
}

// Dealt out in turn, tables of these sizes would put nearly all bytes on every second shard.
TEST(PlaceRanges, ManySmallTablesAreBalancedByBytes) {
  std::vector<ShardUse> shards(2);
  for (int table = 0; table < 40; ++table) {
    const std::uint64_t bytes = table % 2 == 0 ? 1000 : 10;
    const auto placed = place_ranges(std::vector<std::uint64_t>{bytes}, shards);
    shards[placed[0]].bytes += bytes;
    ++shards[placed[0]].ranges;
  }
  EXPECT_EQ(shards[0].bytes, shards[1].bytes);
}

TEST(PlaceRanges, NoShardIsMuchFullerThanAnother) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<ShardUse> shards(1 + random() % 9);
    std::uint64_t largest = 0;
    const std::uint64_t tables = 1 + random() % 30;
    for (std::uint64_t table = 0; table < tables; ++table) {
      const std::uint64_t bytes = 1 + random() % 1000;
      const std::vector<std::uint64_t> ranges(1 + random() % 40, bytes);
      largest = std::max(largest, bytes);
      for (const std::uint32_t shard : place_ranges(ranges, shards)) {
        shards[shard].bytes += bytes;
        ++shards[shard].ranges;
      }
    }
    const auto [least, most] = std::ranges::minmax(shards, {}, &ShardUse::bytes);
    EXPECT_LE(most.bytes - least.bytes, largest) << round;
  }
}

TEST(PlaceRanges, ExpectsBytesOfValuesAndState) {
  const TableSpec dense{.name = "top", .rows = 1 << 20, .optimizer = {OptimizerKind::kAdam}};
  EXPECT_GE(expected_bytes(dense, {0, (1 << 20) - 1}), 2ULL * 3 * (4 << 20));
  const TableSpec direct{.name = "tags", .kind = TableKind::kDirect, .rows = 1000, .dim = 16};
  EXPECT_GE(expected_bytes(direct, {0, 99}), 100ULL * (32 + 64));
  EXPECT_EQ(expected_bytes({.name = "users", .kind = TableKind::kHash, .dim = 64}, {0, ~0ULL}),
            kHashRangeBytes);
}

TEST(PlaceShards, TheFirstViewGivesEachServerAsManyShards) {
  const auto placed = place_shards({}, {0, 1}, std::vector<ShardLoad>(4));
  EXPECT_THAT(placed.view.server_of, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(placed.view.number, 1U);
  EXPECT_THAT(placed.moves, IsEmpty());
}

TEST(PlaceShards, AServerWithoutAShardWaits) {
  const auto placed = place_shards({}, {0, 1, 2}, std::vector<ShardLoad>(2));
  EXPECT_THAT(placed.view.server_of, ElementsAre(0, 1));
  EXPECT_THAT(placed.view.servers, ElementsAre(0, 1, 2));
}

TEST(PlaceShards, ANewServerGetsShardsUntilTheLoadIsEven) {
  const View two{.number = 4, .servers = {0, 1}, .server_of = {0, 1, 0, 1}};
  const auto placed = place_shards(two, {0, 1, 2}, std::vector<ShardLoad>(4, {10, 10}));
  EXPECT_EQ(placed.view.number, 5U);
  EXPECT_THAT(placed.moves,
              ElementsAre(ShardMove{0, 0, 2, "server 0 has 50 % of the load, server 2 has 0 %"}));
  EXPECT_THAT(placed.view.server_of, ElementsAre(2, 1, 0, 1));
}

TEST(PlaceShards, ShardsOfAServerThatLeavesGoToTheLightest) {
  const View three{.number = 1, .servers = {0, 1, 2}, .server_of = {0, 1, 2, 2}};
  const std::vector<ShardLoad> loads{{80, 80}, {10, 10}, {5, 5}, {5, 5}};
  const auto placed = place_shards(three, {0, 1}, loads);
  EXPECT_THAT(placed.view.server_of, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(placed.moves, ElementsAre(ShardMove{2, 2, 1, "server 2 leaves"},
                                        ShardMove{3, 2, 1, "server 2 leaves"}));
}

TEST(PlaceShards, AHotShardKeepsItsServerAndColdOnesMove) {
  const View two{.number = 1, .servers = {0, 1}, .server_of = {0, 0, 1, 1}};
  const std::vector<ShardLoad> loads{{10, 900}, {10, 50}, {10, 50}, {10, 0}};
  const auto placed = place_shards(two, {0, 1}, loads);
  EXPECT_THAT(placed.view.server_of, ElementsAre(0, 1, 1, 1));
}

TEST(PlaceShards, WhatIsEvenStays) {
  const View two{.number = 1, .servers = {0, 1}, .server_of = {0, 1, 0, 1}};
  const auto placed =
      place_shards(two, {0, 1}, std::vector<ShardLoad>{{9, 1}, {11, 1}, {10, 1}, {10, 1}});
  EXPECT_EQ(placed.view.server_of, two.server_of);
  EXPECT_THAT(placed.moves, IsEmpty());
}

// From any view to any other: each shard has a server of the view, and no server that has several
// is much heavier than another.
TEST(PlaceShards, BalancesWhateverWasBefore) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<ShardLoad> loads(1 + random() % 16);
    View view;
    for (ShardLoad& load : loads) {
      load = {1 + random() % 100, random() % 100};
      view.server_of.push_back(random() % 8);
    }
    std::vector<std::uint32_t> servers;
    for (std::uint32_t server = 0; server < 8; ++server) {
      if (random() % 2 == 0) servers.push_back(server);
    }
    if (servers.empty()) servers.push_back(3);
    const auto placed = place_shards(view, servers, loads);
    std::vector<std::size_t> held(8);
    for (const std::uint32_t server : placed.view.server_of) {
      ASSERT_TRUE(std::ranges::binary_search(servers, server));
      ++held[server];
    }
    if (loads.size() < servers.size()) continue;
    for (const std::uint32_t server : servers) EXPECT_GE(held[server], 1U) << round;
    EXPECT_EQ(place_shards(placed.view, servers, loads).view.server_of, placed.view.server_of);
  }
}

}  // namespace
}  // namespace regroup::collective::ps
