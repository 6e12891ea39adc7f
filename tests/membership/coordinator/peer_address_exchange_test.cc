// When the addresses of a World are complete, and in which messages they go to its nodes.
#include "membership/coordinator/peer_address_exchange.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

proto::PeerAddresses addresses_of(proto::MemberId id, std::size_t bytes = 4,
                                  proto::Generation generation = 2) {
  return {generation, {{id, std::vector<std::byte>(bytes)}}};
}

class Exchange : public testing::Test {
 protected:
  proto::World world_{.generation = 2,
                      .members = {{.id = 5, .slot_id = {0, 0}}, {.id = 6, .slot_id = {1, 0}}}};
  PeerAddressExchange exchange_;
};

TEST_F(Exchange, AllGetTheAddressesOnceAllAreKnown) {
  EXPECT_TRUE(exchange_.add(0, addresses_of(5), world_).empty());
  const auto parts = exchange_.add(1, addresses_of(6), world_);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].generation, 2U);
  ASSERT_EQ(parts[0].members.size(), 2U);
  EXPECT_EQ(parts[0].members[1].member, 6U);
}

TEST_F(Exchange, AnAddressThatChangesIsSentAgain) {
  (void)exchange_.add(0, addresses_of(5), world_);
  (void)exchange_.add(1, addresses_of(6), world_);
  const auto parts = exchange_.add(0, addresses_of(5, 9), world_);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].members[0].address.size(), 9U);
}

TEST_F(Exchange, OtherGenerationsAndOtherNodesDoNotCount) {
  EXPECT_TRUE(exchange_.add(0, addresses_of(5), world_).empty());
  EXPECT_TRUE(exchange_.add(1, addresses_of(6, 4, 1), world_).empty());
  EXPECT_TRUE(exchange_.add(7, addresses_of(6), world_).empty());
  world_.generation = 3;
  EXPECT_TRUE(exchange_.add(1, addresses_of(6, 4, 3), world_).empty())
      << "the address of node 0 was of World 2";
}

TEST_F(Exchange, LargeAddressesGoInParts) {
  (void)exchange_.add(0, addresses_of(5, PeerAddressExchange::kPartBytes), world_);
  const auto parts = exchange_.add(1, addresses_of(6, 1), world_);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].members.size(), 1U);
  EXPECT_EQ(parts[1].members.size(), 1U);
}

}  // namespace
}  // namespace regroup::membership
