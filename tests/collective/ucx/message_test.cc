// Checks of message headers and of the nodes that hosts send; and the golden files, with which the
// fuzz targets of this folder begin: a file that the parser no longer accepted would leave the code
// after it untested.
#include <gtest/gtest.h>

#include "collective/net/merge.h"
#include "collective/ucx/peer_address.h"
#include "tests/base/golden_files.h"
#include "tests/collective/ucx/messages.h"

namespace regroup::collective::testing::ucx_message {
namespace {

using base::read_golden;
using base::write_golden;

TEST(UcxMessage, IsAcceptedFromRanksOfTheWorldAndWithValidData) {
  for (const RawMessage& message : valid_messages(2)) {
    const auto header = ucx::parse_header(message.header, message.bytes, 3, kNonce);
    ASSERT_TRUE(header) << message.what;
    EXPECT_TRUE(bytes_of(*header) == message.header) << message.what;
    EXPECT_FALSE(ucx::parse_header(message.header, message.bytes, 2, kNonce)) << message.what;
  }
  for (const RawMessage& message : invalid_messages(2))
    EXPECT_FALSE(ucx::parse_header(message.header, message.bytes, 3, kNonce))
        << message.what << ", " << message.bytes << " bytes";
}

// A message that does not fit comes without its data, and its header has its size.
TEST(UcxMessage, PointToPointMessagesMayBeEmpty) {
  EXPECT_TRUE(
      ucx::parse_header(bytes_of(header_of(ucx::MessageKind::kPointToPoint, 0)), 0, 3, kNonce));
}

TEST(UcxMessage, IsRejectedByAnotherMemberOrGeneration) {
  for (const std::uint64_t nonce : {std::uint64_t{0}, kNonce ^ 1, kNonce << 1, ~kNonce}) {
    for (const RawMessage& message : valid_messages(2)) {
      EXPECT_FALSE(ucx::parse_header(message.header, message.bytes, 3, nonce)) << message.what;
    }
  }
}

struct Seed {
  const char* name;
  std::vector<std::uint32_t> numbers;  // which the fuzz target reads before the bytes
  Bytes bytes;
};

Bytes bytes_of(const Seed& seed) {
  const auto numbers = std::as_bytes(std::span(seed.numbers));
  Bytes out(numbers.begin(), numbers.end());
  out.insert(out.end(), seed.bytes.begin(), seed.bytes.end());
  return out;
}

std::vector<Seed> addresses() {
  const std::vector<ucx::PeerAddress> both = {{AF_INET, 4000, 24, {10, 0, 0, 1}},
                                              {AF_INET6, 4001, 64, {0xfd}}};
  return {{"one", {}, ucx::encode(kNonce, std::span(both).first(1))},
          {"two", {}, ucx::encode(kNonce, both)},
          {"with_failure", {}, ucx::encode(kNonce, both, "rank 2 does a sum of 20")},
          {"failure_alone", {}, ucx::encode(kNonce, {}, "a word")}};
}

// The nodes of four hosts, of which the target uses the first one, two, three and four.
std::vector<Seed> nodes() {
  const auto seed = [](const char* name, std::uint32_t leaves,
                       const std::vector<net::TreeNodes>& hosts) {
    Seed out{name, {leaves}, {}};
    for (const net::TreeNodes& list : hosts) {
      const auto bytes = std::as_bytes(std::span(list));
      out.numbers.push_back(static_cast<std::uint32_t>(bytes.size()));
      out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
    }
    return out;
  };
  return {seed("one_of_one", 1, {{{0, 1}}, {}, {}, {}}),
          seed("two_of_two", 2, {{{0, 1}}, {{1, 2}}, {}, {}}),
          seed("three_of_five", 5, {{{0, 2}}, {{2, 4}}, {{4, 5}}, {}}),
          seed("four_mixed", 8, {{{0, 1}, {4, 6}}, {{1, 2}}, {{2, 4}, {7, 8}}, {{6, 7}}}),
          seed("twice", 2, {{{0, 1}}, {{0, 1}}, {}, {}})};
}

std::vector<Seed> unexpected() {
  std::vector<Seed> out;
  static const std::vector<RawMessage> kGood = valid_messages(2);
  for (const RawMessage& message : kGood)
    out.push_back({message.what.c_str(),
                   {static_cast<std::uint32_t>(kNonce), static_cast<std::uint32_t>(kNonce >> 32),
                    static_cast<std::uint32_t>(message.bytes), 3},
                   message.header});
  return out;
}

TEST(UcxGolden, DISABLED_WriteGoldenFiles) {
  for (const Seed& seed : addresses()) write_golden("ucx_address", seed.name, bytes_of(seed));
  for (const Seed& seed : unexpected()) write_golden("ucx_message", seed.name, bytes_of(seed));
  for (const Seed& seed : nodes()) write_golden("ucx_nodes", seed.name, bytes_of(seed));
}

TEST(UcxGolden, EveryFileIsItsSample) {
  for (const Seed& seed : addresses())
    EXPECT_TRUE(read_golden("ucx_address", seed.name) == bytes_of(seed)) << seed.name;
  for (const Seed& seed : unexpected())
    EXPECT_TRUE(read_golden("ucx_message", seed.name) == bytes_of(seed)) << seed.name;
  for (const Seed& seed : nodes())
    EXPECT_TRUE(read_golden("ucx_nodes", seed.name) == bytes_of(seed)) << seed.name;
}

// A reduction is planned if the hosts together hold each leaf once.
TEST(UcxNodes, ArePlannedIfTheHostsHoldEachLeafOnce) {
  for (const Seed& seed : nodes()) {
    std::vector<net::TreeNodes> by_host;
    std::span<const std::byte> rest(seed.bytes);
    for (std::size_t host = 1; host < seed.numbers.size(); ++host) {
      if (seed.numbers[host] == 0) break;
      by_host.push_back(net::tree_nodes_in(rest.first(seed.numbers[host])));
      rest = rest.subspan(seed.numbers[host]);
    }
    const auto plan = net::plan_halving(0, by_host, seed.numbers[0]);
    EXPECT_EQ(plan.ok(), std::string(seed.name) != "twice")
        << seed.name << plan.status().to_string();
  }
  EXPECT_EQ(net::tree_nodes_in(Bytes(8 + 7)).size(), 1U);
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_message
