// Which hosts and slots go back once a job has become smaller.
#include "launcher/job/idle_hosts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regroup::job {
namespace {

using UseState = HostUse::State;
using Slots = std::vector<IdleSlots>;
using Whole = std::vector<std::size_t>;

// Hosts of four slots that the allocator takes back as a whole: the first runs four members.
std::vector<HostUse> three_hosts() {
  std::vector<HostUse> hosts;
  for (const std::size_t index : {0, 1, 2}) {
    hosts.push_back({.host = index, .slots = 4, .given = 4, .members = index == 0 ? 4U : 0U});
    hosts.back().returnable = true;
  }
  return hosts;
}

TEST(IdleHosts, CountSlots) {
  auto hosts = three_hosts();
  hosts[1].state = UseState::kLost;
  hosts[2] = {.host = 2, .state = UseState::kDrains};
  EXPECT_EQ(slots_in(hosts), 8U);
  EXPECT_EQ(slots_up(hosts), 4U);
  EXPECT_EQ(slots_lacked(hosts, 8), 0U);
  EXPECT_EQ(slots_lacked(hosts, 7), 0U);
  EXPECT_EQ(slots_lacked(hosts, 9), 1U);
}

TEST(IdleHosts, AreReturnedFromTheLastOneOnAsLongAsEnoughSlotsStay) {
  EXPECT_EQ(find_idle(three_hosts(), 4).whole, (Whole{2, 1}));
  EXPECT_EQ(find_idle(three_hosts(), 5).whole, Whole{2});
  EXPECT_EQ(find_idle(three_hosts(), 8).whole, Whole{2});
  EXPECT_EQ(find_idle(three_hosts(), 9).whole, Whole{});
  EXPECT_EQ(find_idle(three_hosts(), 20).whole, Whole{});
}

TEST(IdleHosts, StayIfTheyAreInUseOrNobodyTakesThem) {
  const std::vector<void (*)(HostUse&)> reasons = {
      [](HostUse& host) { host.members = 1; },
      [](HostUse& host) { host.reclaimed = true; },
      [](HostUse& host) { host.returnable = false; },
  };
  for (std::size_t reason = 0; reason < reasons.size(); ++reason) {
    auto hosts = three_hosts();
    reasons[reason](hosts[2]);
    EXPECT_EQ(find_idle(hosts, 4).whole, Whole{1}) << reason;
  }
}

TEST(IdleHosts, ThatAreNotUpAreNeitherReturnedNorSpare) {
  for (const auto state : {UseState::kLost, UseState::kDrains}) {
    auto hosts = three_hosts();
    hosts[2].state = state;
    EXPECT_EQ(find_idle(hosts, 4).whole, Whole{1});
    EXPECT_EQ(find_idle(hosts, 5).whole, Whole{});
  }
}

TEST(IdleHosts, OfOneClientAreReturnedTogether) {
  auto hosts = three_hosts();
  for (const std::size_t index : {1, 2}) {
    hosts[index].client = 7;
    hosts[index].returnable = false;
  }
  EXPECT_EQ(find_idle(hosts, 4).whole, (Whole{1, 2}));
  EXPECT_EQ(find_idle(hosts, 5).whole, Whole{});
  hosts[1].members = 1;
  EXPECT_EQ(find_idle(hosts, 4).whole, Whole{});
  hosts[1].members = 0;
  hosts[1].client = 8;
  EXPECT_EQ(find_idle(hosts, 5).whole, Whole{2});
}

TEST(IdleHosts, ThatStayReturnSlotsButKeepOneEach) {
  auto hosts = three_hosts();
  for (HostUse& host : hosts) host.divisible = true;
  for (HostUse& host : hosts) host.returnable = false;
  hosts[0].members = 2;
  EXPECT_EQ(find_idle(hosts, 2).slots, (Slots{{2, 3}, {1, 3}, {0, 2}}));
  EXPECT_EQ(find_idle(hosts, 7).slots, (Slots{{2, 3}, {1, 2}}));
  EXPECT_EQ(find_idle(hosts, 12).slots, Slots{});
  hosts[2].reclaimed = true;
  hosts[1].given = 0;  // it has all its slots by itself
  EXPECT_EQ(find_idle(hosts, 2).slots, (Slots{{0, 2}}));
}

TEST(IdleHosts, AreReturnedAsAWholeBeforeSlotsOfOthers) {
  auto hosts = three_hosts();
  for (HostUse& host : hosts) host.divisible = true;
  const IdleHosts idle = find_idle(hosts, 6);
  EXPECT_EQ(idle.whole, Whole{2});
  EXPECT_EQ(idle.slots, (Slots{{1, 2}}));
}

}  // namespace
}  // namespace regroup::job
