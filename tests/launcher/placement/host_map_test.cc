// Where mpirun puts ranks on hosts, and what does not fit.
#include "launcher/placement/host_map.h"

#include <gtest/gtest.h>

namespace regroup::placement {
namespace {

using Ranks = std::vector<std::uint32_t>;

HostMapRequest on(std::vector<spec::HostRequest> hosts, std::vector<std::uint32_t> counts) {
  HostMapRequest request;
  request.hosts = std::move(hosts);
  request.counts = std::move(counts);
  return request;
}

HostMapRequest by_node(HostMapRequest request) {
  request.map.kind = spec::MapBy::Kind::kUnit;
  request.map.unit = spec::Unit::kNode;
  return request;
}

TEST(HostMap, FillsTheSlotsOfAHostBeforeTheNext) {
  EXPECT_EQ(*map_to_hosts(on({{"a", 2}, {"b", 3}}, {4})), (Ranks{0, 0, 1, 1}));
}

TEST(HostMap, RanksByNodeOrBySlotHoweverItMaps) {
  HostMapRequest filled = on({{"a", 3}, {"b", 3}}, {4});
  filled.rank.kind = spec::RankBy::Kind::kNode;
  EXPECT_EQ(*map_to_hosts(filled), (Ranks{0, 1, 0, 0}));
  HostMapRequest dealt = by_node(on({{"a", 3}, {"b", 3}}, {4}));
  EXPECT_EQ(*map_to_hosts(dealt), (Ranks{0, 1, 0, 1}));
  dealt.rank.kind = spec::RankBy::Kind::kSlot;
  EXPECT_EQ(*map_to_hosts(dealt), (Ranks{0, 0, 1, 1}));
}

TEST(HostMap, PutsEachProgramOnItsOwnHostsOnly) {
  HostMapRequest request = on({{"a", 4}, {"b", 4}}, {1, 2, 3});
  request.only_hosts = {{"b"}, {"a"}, {}};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{1, 0, 0, 1, 0, 0}));
  request.only_hosts[2] = {"b", "a"};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{1, 0, 0, 1, 1, 1}));
  request.counts = {1, 5, 1};
  const auto refused = map_to_hosts(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "5 members requested; 4 slots available on 1 host; --oversubscribe allows more");
  request.oversubscribe = true;
  EXPECT_EQ(*map_to_hosts(request), (Ranks{1, 0, 0, 0, 0, 0, 1}));
}

TEST(HostMap, PutsConsecutiveRanksOnDifferentHostsByNode) {
  EXPECT_EQ(*map_to_hosts(by_node(on({{"a", 3}, {"b", 1}, {"c", 3}}, {5}))),
            (Ranks{0, 1, 2, 0, 2}));
}

TEST(HostMap, GivesTheNextProgramTheSlotsLeft) {
  EXPECT_EQ(*map_to_hosts(on({{"a", 2}, {"b", 2}}, {1, 3})), (Ranks{0, 0, 1, 1}));
}

TEST(HostMap, PutsTheRequestedNumberOnEachHost) {
  auto request = on({{"a", 4}, {"b", 4}}, {4});
  request.per_host = {2};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 1, 1}));
  request.counts = {5};
  EXPECT_EQ(map_to_hosts(request).status().message(),
            "5 members requested, at most 2 on each; 8 slots available on 2 hosts; --oversubscribe "
            "allows more");
}

TEST(HostMap, RefusesMoreMembersThanFit) {
  const auto mapped = map_to_hosts(on({{"a", 2}, {"b", 1}}, {4}));
  EXPECT_EQ(mapped.code(), base::Code::kUnavailable);
  EXPECT_EQ(mapped.status().message(),
            "4 members requested; 3 slots available on 2 hosts; --oversubscribe allows more");
}

TEST(HostMap, GoesToTheNextHostOnceTheProcessorsOfOneAreUsed) {
  HostMapRequest request = on({{"a", 5}, {"b", 5}}, {1, 3});
  request.most_bound = {2, 2};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 1, 1}));
  request.counts = {1, 4};
  EXPECT_EQ(map_to_hosts(request).code(), base::Code::kResourceExhausted);
}

TEST(HostMap, TellsTooFewSlotsFromOtherLimits) {
  HostMapRequest request = on({{"a", 2}}, {3});
  EXPECT_EQ(map_to_hosts(request).code(), base::Code::kUnavailable);
  request.per_host = {1};
  EXPECT_EQ(map_to_hosts(request).code(), base::Code::kResourceExhausted);
}

TEST(HostMap, SharesMembersBeyondTheSlotsEvenly) {
  auto request = on({{"a", 2}, {"b", 1}}, {6});
  request.oversubscribe = true;
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 0, 0, 1, 1}));
}

TEST(HostMap, GoesOverTheHostsAgainAndAgainAsHydra) {
  HostMapRequest request = on({{"a", 3}, {"c", 1}, {"b", 2}}, {6, 2, 7});
  request.oversubscribe = request.cyclic = true;
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 2, 2, 0, 0, 0}));
  request.counts = {4, 2, 1};
  request.per_host = {1, 0, 0};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 1, 2, 0, 1, 2, 0}));
  request = on({{"a", 1}, {"b", 4}}, {3});
  request.oversubscribe = request.cyclic = true;
  request.per_host = {2};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 1}));
  request.only_hosts = {{"none"}};
  EXPECT_FALSE(map_to_hosts(request).ok());
}

TEST(HostMap, NeverExceedsMaxSlots) {
  auto request = on({{"a", 2, 2}, {"b", 1, 3}}, {5});
  request.oversubscribe = true;
  EXPECT_EQ(*map_to_hosts(request), (Ranks{0, 0, 1, 1, 1}));
  request.counts = {6};
  EXPECT_EQ(map_to_hosts(request).code(), base::Code::kUnavailable);
}

TEST(HostMap, FollowsTheGivenSequence) {
  auto request = on({{"a", 1}, {"b", 1}}, {3});
  request.map.kind = spec::MapBy::Kind::kSequence;
  request.sequence = {"b", "a", "b", "a"};
  EXPECT_EQ(*map_to_hosts(request), (Ranks{1, 0, 1}));
  request.sequence = {"b", "c"};
  EXPECT_EQ(map_to_hosts(request).status().message(),
            "--map-by seq: host c is not a host of the job");
}

}  // namespace
}  // namespace regroup::placement
