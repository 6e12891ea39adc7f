// Which client has offered which host, until the host has left the job.
#include "launcher/job/host_leases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace regroup::job {
namespace {

using std::chrono::seconds;
using Indices = std::vector<std::size_t>;

TEST(HostLeases, LastUntilTheHostLeaves) {
  HostLeases leases;
  leases.offer(3, {.client = 7, .grace = seconds(30)});
  leases.offer(4, {.client = 7, .grace = seconds(30)});
  leases.demand(0, 8);
  EXPECT_EQ(leases.find(1), nullptr);
  EXPECT_EQ(leases.client(1), std::nullopt);
  EXPECT_EQ(leases.client(3), 7U);
  EXPECT_EQ(leases.find(3)->grace, seconds(30));
  EXPECT_EQ(leases.find(0)->grace, seconds(0));
  EXPECT_EQ(leases.hosts_of(7), (Indices{3, 4}));
  EXPECT_EQ(leases.clients(), (std::set<lease::GrantId>{7, 8}));

  EXPECT_EQ(leases.leave(3), 7U);
  EXPECT_EQ(leases.leave(3), std::nullopt);
  EXPECT_EQ(leases.hosts_of(7), Indices{4});
  EXPECT_EQ(leases.leave(4), 7U);
  EXPECT_EQ(leases.hosts_of(7), Indices{});
}

TEST(HostLeases, ReportAReasonUnlessItWasTheLastOne) {
  HostLeases leases;
  EXPECT_FALSE(leases.is_news(3, "no route"));
  leases.offer(3, {.client = 7});
  EXPECT_TRUE(leases.is_news(3, "no route"));
  EXPECT_FALSE(leases.is_news(3, "no route"));
  EXPECT_TRUE(leases.is_news(3, "refused"));
  EXPECT_TRUE(leases.is_news(3, "no route"));
}

TEST(HostLeases, AreHeldForTheGraceOfAClientThatMayReconnect) {
  HostLeases leases;
  leases.offer(3, {.client = 7, .grace = seconds(30)});
  leases.offer(4, {.client = 8, .grace = seconds(60)});
  EXPECT_EQ(leases.grace_without(7), HostLeases::kNoGrace);
  leases.set_token("seven", 7);
  EXPECT_EQ(leases.grace_without(7), seconds(30));
  EXPECT_EQ(leases.grace_without(8), HostLeases::kNoGrace);
}

TEST(HostLeases, PassToTheClientThatReconnects) {
  HostLeases leases;
  leases.offer(3, {.client = 7, .grace = seconds(30)});
  leases.offer(4, {.client = 8});
  leases.set_token("seven", 7);
  EXPECT_EQ(leases.reconnect("eight", 9), std::nullopt);
  EXPECT_EQ(leases.reconnect("seven", 9), 7U);
  EXPECT_EQ(leases.client(3), 9U);
  EXPECT_EQ(leases.client(4), 8U);
  EXPECT_EQ(leases.grace_without(9), seconds(30));
  EXPECT_EQ(leases.leave(3), 9U);
  EXPECT_EQ(leases.reconnect("seven", 10), 9U);  // it learns that its hosts are free
  EXPECT_EQ(leases.hosts_of(10), Indices{});
}

}  // namespace
}  // namespace regroup::job
