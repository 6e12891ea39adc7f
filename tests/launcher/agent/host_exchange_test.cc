// What agents of other hosts may say of MPI: of their own ranks, in their own name, answers to whom
// they were asked by; and how much of it.
#include "launcher/agent/host_exchange.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace regroup::agent {
namespace {

class Heard final : public Node {
 public:
  void add_app(std::uint32_t, const process::App&) override {}
  void drop_app(std::uint32_t) override {}
  void start(SpaceOrder) override {}
  void signal(proto::MemberId, int) override {}
  void tell(const pmi::Message& message) override { told.push_back(message); }
  void settle() override {}
  std::vector<pmi::Message> told;
};

// Rank r of space 0 is on host r, of three; space 1 is on host 2.
class HostExchangeTest : public ::testing::Test {
 protected:
  using Words = std::vector<std::pair<std::uint32_t, std::string>>;
  static pmi::Contribute part(std::uint32_t host, std::vector<std::uint32_t> hosts = {1, 2},
                              std::string key = "fence") {
    return {std::move(key), std::move(hosts), host, {std::byte(host)}};
  }

  std::array<Heard, 3> nodes_;
  Words cut_off_, stuck_;
  HostExchange exchange_{
      {[this](std::uint32_t host) { return host < 3 ? &nodes_[host] : nullptr; },
       [](pmi::ProcId process) {
         const bool there = process.space == 0 && process.rank < 3;
         return there                          ? std::optional(process.rank)
                : process == pmi::ProcId{1, 0} ? std::optional(2U)
                                               : std::nullopt;
       },
       [](std::uint32_t host, std::uint32_t space) {
         return space == 0 || (space == 1 && host == 2);
       },
       [this](std::uint32_t host, const std::string& why) { cut_off_.emplace_back(host, why); },
       [this](std::uint32_t host, const std::string& why) { stuck_.emplace_back(host, why); }},
      {.held = 10'000, .asked = 3, .gathered = 5'000}};
};

TEST_F(HostExchangeTest, AHostSendsForItsOwnRanksOnly) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const pmi::ProcId process{0, rank};
    const std::vector<pmi::Message> all{pmi::Connected{process}, pmi::Finalized{process},
                                        pmi::Aborted{process, 1, ""}, pmi::Spawn{1, process, {}}};
    for (const pmi::Message& message : all) {
      EXPECT_EQ(exchange_.may_say(1, message), rank == 1) << message.index();
      EXPECT_TRUE(exchange_.may_say(0, message));  // the controller's own
    }
  }
  EXPECT_FALSE(exchange_.may_say(1, pmi::Connected{{0, 7}}));
  EXPECT_FALSE(exchange_.may_say(1, pmi::Connected{{9, 1}}));
}

TEST_F(HostExchangeTest, TheFirstHostAnswersCallsAboutPublishedNames) {
  const pmi::NameCall call{7, 1, {0, 1}, pmi::NameOperation::kLookup, {std::byte{1}}};
  EXPECT_FALSE(exchange_.may_say(2, call));
  EXPECT_FALSE(exchange_.may_say(1, pmi::NameCall{7, 1, {0, 2}}));  // not its own rank
  exchange_.pass(1, call);
  ASSERT_EQ(nodes_[0].told.size(), 1U);
  ASSERT_NE(std::get_if<pmi::NameCall>(&nodes_[0].told[0]), nullptr);
  exchange_.pass(2, pmi::Fetched{7, 1, 0, {}});
  EXPECT_TRUE(nodes_[1].told.empty());
  exchange_.pass(0, pmi::Fetched{7, 1, 0, {std::byte{2}}});
  ASSERT_EQ(nodes_[1].told.size(), 1U);
  EXPECT_EQ(std::get<pmi::Fetched>(nodes_[1].told[0]).data, std::vector{std::byte{2}});
}

TEST_F(HostExchangeTest, OnlyHostsWithARankInASpaceReportIt) {
  EXPECT_TRUE(exchange_.may_say(1, pmi::GroupsConnected{{0, 1}}));
  EXPECT_TRUE(exchange_.may_say(2, pmi::GroupsDisconnected{{1, 7}}));
  EXPECT_FALSE(exchange_.may_say(1, pmi::GroupsConnected{{1, 7}}));
  EXPECT_FALSE(exchange_.may_say(1, pmi::GroupsDisconnected{{1, 7}}));
  EXPECT_FALSE(exchange_.may_say(1, pmi::GroupsConnected{{}}));
  EXPECT_TRUE(exchange_.may_say(0, pmi::GroupsConnected{{1, 7}}));  // the controller's own
}

TEST_F(HostExchangeTest, ContributionsNameTheirSender) {
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

TEST_F(HostExchangeTest, AGuessedKeyDoesNotChangeTheFence) {
  exchange_.pass(2, part(2, {0, 2}));
  exchange_.pass(2, part(2, {2}));  // its own alone: answered, and to it alone
  exchange_.pass(0, part(0, {0, 1}));
  exchange_.pass(1, part(1, {0, 1}));
  EXPECT_EQ(nodes_[0].told.size(), 1U);
  EXPECT_EQ(nodes_[1].told.size(), 1U);
  EXPECT_EQ(nodes_[2].told.size(), 1U);
  for (const std::vector<std::uint32_t>& hosts :
       {std::vector<std::uint32_t>{0, 1}, {1, 2, 9}, {2, 2, 1}, {}}) {
    EXPECT_FALSE(exchange_.may_say(2, part(2, hosts))) << hosts.size();
  }
}

TEST_F(HostExchangeTest, AHostOverItsLimitIsCutOffAndTheOthersContinue) {
  exchange_.pass(0, part(0, {0, 1}, "theirs"));
  for (int i = 0; i < 100; ++i) exchange_.pass(2, part(2, {1, 2}, "guess " + std::to_string(i)));
  ASSERT_EQ(cut_off_.size(), 1U);
  EXPECT_EQ(cut_off_[0].first, 2U);
  EXPECT_NE(cut_off_[0].second.find("(limit 10000)"), std::string::npos) << cut_off_[0].second;
  exchange_.pass(1, part(1, {0, 1}, "theirs"));
  EXPECT_EQ(nodes_[0].told.size(), 1U);
  EXPECT_TRUE(stuck_.empty());
  exchange_.pass(1, part(1, {1, 2}, "guess 0"));  // would wait for it
  ASSERT_EQ(stuck_.size(), 1U);
  EXPECT_EQ(stuck_[0].first, 2U);
}

TEST_F(HostExchangeTest, WaitingForACutOffHostIsReported) {
  exchange_.pass(1, part(1));
  for (int i = 0; i < 100; ++i) exchange_.pass(2, part(2, {1, 2}, "guess " + std::to_string(i)));
  ASSERT_EQ(stuck_.size(), 1U);
  EXPECT_EQ(stuck_[0].first, 2U);
}

TEST_F(HostExchangeTest, AnOversizedOperationNamesTheLargestContribution) {
  const auto large = [](std::uint32_t host, std::size_t bytes) {
    return pmi::Contribute{"fence", {1, 2}, host, std::vector<std::byte>(bytes)};
  };
  exchange_.pass(2, large(2, 4'900));
  exchange_.pass(1, large(1, 200));
  ASSERT_EQ(stuck_.size(), 1U);
  EXPECT_EQ(stuck_[0].first, 2U);
  EXPECT_NE(stuck_[0].second.find("4900 of 5100 bytes"), std::string::npos) << stuck_[0].second;
  EXPECT_TRUE(cut_off_.empty());
  exchange_.pass(2, pmi::Contribute{"another", {1, 2}, 2, std::vector<std::byte>(5'001)});
  ASSERT_EQ(cut_off_.size(), 1U);  // nobody else has come
  EXPECT_EQ(cut_off_[0].first, 2U);
  EXPECT_TRUE(nodes_[1].told.empty() && nodes_[2].told.empty());
}

TEST_F(HostExchangeTest, OnlyTheAskedHostAnswersAndOnce) {
  exchange_.pass(1, pmi::Fetch{5, 2, {0, 2}});  // in the name of another
  EXPECT_TRUE(nodes_[2].told.empty());
  exchange_.pass(1, pmi::Fetch{5, 1, {0, 2}});
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

TEST_F(HostExchangeTest, AHostWithTooManyRequestsIsCutOffAndAnswered) {
  for (std::uint64_t request = 0; request < 100; ++request)
    exchange_.pass(1, pmi::Fetch{request, 1, {0, 2}});
  EXPECT_EQ(nodes_[2].told.size(), 3U);
  EXPECT_EQ(nodes_[1].told.size(), 100U);  // refused, all of them
  ASSERT_EQ(cut_off_.size(), 1U);
  EXPECT_EQ(cut_off_[0].first, 1U);
  EXPECT_NE(cut_off_[0].second.find("(limit 3)"), std::string::npos) << cut_off_[0].second;
  exchange_.pass(0, pmi::Fetch{1, 0, {0, 1}});  // it still answers others
  exchange_.pass(1, pmi::Fetched{1, 0, 0, {}});
  EXPECT_EQ(nodes_[0].told.size(), 1U);
}

TEST_F(HostExchangeTest, RequestsAboutAClosedSpaceAreAnswered) {
  exchange_.pass(1, pmi::Fetch{1, 1, {1, 0}});
  exchange_.pass(1, pmi::Fetch{2, 1, {0, 2}});
  exchange_.closed(1);
  ASSERT_EQ(nodes_[1].told.size(), 1U);
  EXPECT_EQ(std::get<pmi::Fetched>(nodes_[1].told[0]).request, 1U);
  EXPECT_NE(std::get<pmi::Fetched>(nodes_[1].told[0]).status, 0);
  exchange_.pass(2, pmi::Fetched{1, 1, 0, {}});  // too late
  EXPECT_EQ(nodes_[1].told.size(), 1U);
  exchange_.pass(2, pmi::Fetched{2, 1, 0, {}});
  EXPECT_EQ(nodes_[1].told.size(), 2U);
}

TEST_F(HostExchangeTest, ARestartForgetsAllOperations) {
  exchange_.pass(1, part(1));
  exchange_.pass(1, pmi::Fetch{1, 1, {0, 2}});
  exchange_.restart();
  exchange_.pass(2, part(2));
  exchange_.pass(2, pmi::Fetched{1, 1, 0, {}});
  EXPECT_TRUE(nodes_[1].told.empty());
}

}  // namespace
}  // namespace regroup::agent
