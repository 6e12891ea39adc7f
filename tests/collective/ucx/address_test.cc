// The encoding of addresses and failure reasons, and the choice of addresses.
#include "collective/ucx/peer_address.h"

#include <gtest/gtest.h>

#include <cstring>

namespace regroup::collective::ucx_address {
namespace {

const std::vector<ucx::PeerAddress> kAddresses = {{AF_INET, 4000, 24, {10, 0, 0, 1}},
                                                  {AF_INET6, 4001, 64, {0xfd}}};

constexpr std::uint64_t kNonce = 0x1234'5678'9abc'def0;

std::vector<std::byte> with_count(std::vector<std::byte> bytes, std::uint32_t count) {
  std::memcpy(bytes.data() + sizeof kNonce, &count, sizeof count);
  return bytes;
}

TEST(UcxAddress, SurvivesARoundTripWithAndWithoutAFailureReason) {
  for (const char* reason : {"", "rank 2 does a sum of 20"}) {
    const auto bytes = ucx::encode(kNonce, kAddresses, reason);
    EXPECT_EQ(ucx::nonce_in(bytes), kNonce);
    EXPECT_EQ(ucx::decode(bytes), kAddresses);
    EXPECT_EQ(ucx::failure_reason_in(bytes), reason);
  }
  EXPECT_EQ(ucx::failure_reason_in(ucx::encode(kNonce, {}, "a reason alone")), "a reason alone");
}

TEST(UcxAddress, HasNoFailureReasonAfterAFalseCount) {
  const auto bytes = ucx::encode(kNonce, kAddresses, "word");
  for (const std::uint32_t count : {3U, 1U << 20, ~0U}) {
    EXPECT_EQ(ucx::failure_reason_in(with_count(bytes, count)), "") << count;
    EXPECT_TRUE(ucx::decode(with_count(bytes, count)).empty()) << count;
    EXPECT_EQ(ucx::nonce_in(with_count(bytes, count)), 0U) << count;
  }
}

TEST(UcxAddress, IsEmptyIfItsCountIsTruncated) {
  for (std::size_t size = 0; size < sizeof kNonce + sizeof(std::uint32_t); ++size) {
    std::vector<std::byte> bytes = ucx::encode(kNonce, {});
    bytes.resize(size);
    EXPECT_EQ(ucx::nonce_in(bytes), 0U);
    EXPECT_TRUE(ucx::decode(bytes).empty());
    EXPECT_EQ(ucx::failure_reason_in(bytes), "");
  }
}

TEST(UcxAddress, UsesTheRequestedInterfaces) {
  const std::vector<ucx::PeerAddress> loopback{{AF_INET, 0, 8, {127, 0, 0, 1}}}, none;
  const std::vector<ucx::PeerAddress> all = ucx::local_addresses();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(ucx::addresses_of_devices("lo"), loopback);
  EXPECT_EQ(ucx::addresses_of_devices("mlx5_0:1,lo"), loopback);
  EXPECT_EQ(ucx::addresses_of_devices("^lo"), all == loopback ? none : all);
  for (const char* devices : {"", "all", "l", "mlx5_0:1", "^mlx5_0:1", "^", ","})
    EXPECT_EQ(ucx::addresses_of_devices(devices), none) << devices;
}

TEST(UcxAddress, UsesPortsOfTheRequestedRange) {
  const auto read = [](const char* text) {
    const auto range = ucx::read_port_range(text);
    return range.ok() ? std::pair(int{range->first}, int{range->last}) : std::pair(-1, -1);
  };
  EXPECT_EQ(read(""), std::pair(0, 0));
  EXPECT_EQ(read("0"), std::pair(0, 0));
  EXPECT_EQ(read("20000-20099"), std::pair(20000, 20099));
  EXPECT_EQ(read("65535-65535"), std::pair(65535, 65535));
  for (const char* text :
       {"-", "20000", "20000-", "-20000", "20099-20000", "0-9", "1-65536", "1-2 ", "a-b"})
    EXPECT_EQ(read(text), std::pair(-1, -1)) << text;
  EXPECT_EQ(ucx::read_port_range("9-1").status().message(),
            "UCX_TCP_PORT_RANGE=9-1: expected a range such as 20000-20999, or 0 for any port");
}

// The bridge of containers has one address on all hosts, so a member that connects to it reaches
// itself.
TEST(UcxAddress, OrdersNearAddressesFirstAndOwnOnesLast) {
  const ucx::PeerAddress bridge{AF_INET, 4000, 16, {172, 17, 0, 1}};
  const ucx::PeerAddress far{AF_INET, 4000, 24, {10, 1, 0, 7}},
      near{AF_INET, 4000, 24, {10, 0, 0, 2}};
  const std::vector<ucx::PeerAddress> mine{{AF_INET, 5000, 16, {172, 17, 0, 1}},
                                           {AF_INET, 5000, 24, {10, 0, 0, 1}}};
  EXPECT_EQ(ucx::nearest_first({bridge, far, near}, mine), (std::vector{near, far, bridge}));
  EXPECT_EQ(ucx::nearest_first({bridge, far}, mine), (std::vector{far, bridge}));
  EXPECT_EQ(ucx::nearest_first({bridge}, mine), std::vector{bridge});
}

}  // namespace
}  // namespace regroup::collective::ucx_address
