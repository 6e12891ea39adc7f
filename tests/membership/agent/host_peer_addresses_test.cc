// HostPeerAddresses: a node's addresses are complete, or not sent.
#include "membership/agent/host_peer_addresses.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

proto::PeerAddresses own(proto::Generation g, proto::MemberId id, int address) {
  return {g, {{id, {static_cast<std::byte>(address)}}}};
}

// Members 0 and 2 are on node 1, member 1 is on node 2.
proto::World world(proto::Generation g) {
  return {.generation = g,
          .members = {{.id = 0, .slot_id = {1, 0}},
                      {.id = 1, .slot_id = {2, 0}},
                      {.id = 2, .slot_id = {1, 1}}}};
}

TEST(HostPeerAddresses, AreCompleteWhenAllMembersOfTheNodeHavePublished) {
  HostPeerAddresses addresses;
  EXPECT_FALSE(addresses.complete());
  addresses.begin(world(3), 1);
  EXPECT_FALSE(addresses.add(2, own(3, 2, 20)));
  EXPECT_FALSE(addresses.complete());
  EXPECT_TRUE(addresses.add(0, own(3, 0, 10)));
  const proto::PeerAddresses all{3, {{2, {std::byte{20}}}, {0, {std::byte{10}}}}};
  EXPECT_EQ(addresses.complete(), all);
}

TEST(HostPeerAddresses, AChangeIsNewAndARepetitionIsNot) {
  HostPeerAddresses addresses;
  addresses.begin(world(3), 2);
  EXPECT_TRUE(addresses.add(1, own(3, 1, 10)));
  EXPECT_FALSE(addresses.add(1, own(3, 1, 10)));
  EXPECT_TRUE(addresses.add(1, own(3, 1, 11)));
  EXPECT_EQ(addresses.complete(), own(3, 1, 11));
}

TEST(HostPeerAddresses, ThoseOfOtherGenerationsAndMembersAreIgnored) {
  HostPeerAddresses addresses;
  addresses.begin(world(3), 2);
  EXPECT_FALSE(addresses.add(1, own(2, 1, 10)));
  EXPECT_FALSE(addresses.add(0, own(3, 0, 10))) << "member 0 is on another node";
  EXPECT_FALSE(addresses.add(1, {3, {{1, {}}, {0, {}}}})) << "a member has one address";
  EXPECT_FALSE(addresses.complete());
  EXPECT_TRUE(addresses.add(1, own(3, 0, 10)));
  EXPECT_EQ(addresses.complete(), own(3, 1, 10)) << "who has sent it counts, not what it says";
  addresses.begin(world(4), 2);
  EXPECT_FALSE(addresses.complete());
  addresses.begin(world(5), 9);
  EXPECT_FALSE(addresses.complete()) << "no member is on node 9";
}

}  // namespace
}  // namespace regroup::membership
