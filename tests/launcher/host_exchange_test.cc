// What agents of other hosts may say of MPI: of their own ranks, in their own name, and answers to whom they
// were asked by.
#include "launcher/supervise/host_exchange.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace regroup::launcher {
namespace {

class Heard final : public Node {
 public:
  void add_app(std::uint32_t, const App&) override {}
  void drop_app(std::uint32_t) override {}
  void start(SpaceOrder) override {}
  void signal(core::MemberId, int) override {}
  void tell(const pmi::Message& message) override { told.push_back(message); }
  void settle() override {}
  std::vector<pmi::Message> told;
};

// Rank r of space 0 is on host r, of three.
class HostExchangeTest : public ::testing::Test {
 protected:
  std::array<Heard, 3> nodes_;
  HostExchange exchange_{[this](std::uint32_t host) { return host < 3 ? &nodes_[host] : nullptr; },
                         [](pmi::Seat seat) {
                           const bool there = seat.space == 0 && seat.rank < 3;
                           return there ? std::optional(seat.rank) : std::nullopt;
                         }};
};

TEST_F(HostExchangeTest, AHostSpeaksForItsOwnRanks) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const pmi::Seat seat{0, rank};
    const std::vector<pmi::Message> all{pmi::Connected{seat}, pmi::Finalized{seat}, pmi::Aborted{seat, 1, ""},
                                        pmi::Spawn{1, seat, {}}};
    for (const pmi::Message& message : all) {
      EXPECT_EQ(exchange_.may_say(1, message), rank == 1) << message.index();
      EXPECT_TRUE(exchange_.may_say(0, message));  // the head's own
    }
  }
  EXPECT_FALSE(exchange_.may_say(1, pmi::Connected{{0, 7}}));
  EXPECT_FALSE(exchange_.may_say(1, pmi::Connected{{9, 1}}));
}

TEST_F(HostExchangeTest, PartsAreBroughtInOnesOwnName) {
  const auto part = [](std::uint32_t host) {
    return pmi::Contribute{"fence", {1, 2}, host, {std::byte(host)}};
  };
  exchange_.pass(1, part(1));
  exchange_.pass(1, part(2));
  EXPECT_TRUE(nodes_[1].told.empty());
  exchange_.pass(2, part(2));
  for (const std::uint32_t host : {1U, 2U}) {
    ASSERT_EQ(nodes_[host].told.size(), 1U);
    const auto* gathered = std::get_if<pmi::Gathered>(&nodes_[host].told[0]);
    ASSERT_NE(gathered, nullptr);
    EXPECT_EQ(gathered->data, (std::vector{std::byte{1}, std::byte{2}}));
  }
  EXPECT_TRUE(nodes_[0].told.empty());
}

TEST_F(HostExchangeTest, OnlyWhoWasAskedAnswersAndOnce) {
  exchange_.pass(1, pmi::Fetch{5, 2, {0, 2}});  // in the name of another
  EXPECT_TRUE(nodes_[2].told.empty());
  exchange_.pass(1, pmi::Fetch{5, 1, {0, 2}});
  EXPECT_EQ(nodes_[2].told.size(), 1U);
  exchange_.pass(1, pmi::Fetched{5, 1, 0, {}});
  exchange_.pass(2, pmi::Fetched{6, 1, 0, {}});
  EXPECT_TRUE(nodes_[1].told.empty());
  exchange_.pass(2, pmi::Fetched{5, 1, 0, {std::byte{7}}});
  exchange_.pass(2, pmi::Fetched{5, 1, 0, {std::byte{8}}});
  ASSERT_EQ(nodes_[1].told.size(), 1U);
  EXPECT_EQ(std::get<pmi::Fetched>(nodes_[1].told[0]).data, std::vector{std::byte{7}});
  exchange_.pass(1, pmi::Fetch{6, 1, {0, 9}});  // nobody there: answered here
  ASSERT_EQ(nodes_[1].told.size(), 2U);
  EXPECT_NE(std::get<pmi::Fetched>(nodes_[1].told[1]).status, 0);
}

}  // namespace
}  // namespace regroup::launcher
