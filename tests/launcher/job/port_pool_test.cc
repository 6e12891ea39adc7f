// Held ports: free for a server that asks for them, again and again, and for nobody by chance.
#include "launcher/job/port_pool.h"
#include "base/status.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace regroup::job {
namespace {

using testing::HasSubstr;

// What a job on this host alone gets.
struct Pool {
  HeldPorts held;
  Cluster cluster;
};
base::Result<Pool> pool_of(const std::vector<Role>& roles) {
  REGROUP_ASSIGN_OR_RETURN(auto wanted, ports_wanted(roles, {}, 1));
  REGROUP_ASSIGN_OR_RETURN(auto held, hold_ports(wanted.front(), kThisHost));
  Pool pool{std::move(held), {"", roles, {}, 0}};
  give_ports(pool.cluster, {}, {pool.held.numbers}, {std::string(kThisHost)});
  return pool;
}

// A server on all addresses, as gRPC's; the descriptor, or the errno as a negative number.
int serve(std::uint16_t port, bool reuse, base::Fd& socket) {
  socket.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 8) != 0) {
    return -errno;
  }
  return 0;
}

TEST(PortPool, ServersTakeTheirPortsAgainAndAgain) {
  auto pool = pool_of({{"worker", 2}});
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  for (int life = 0; life < 3; ++life) {
    base::Fd first, second, coordinator;
    EXPECT_EQ(serve(pool->cluster.members[0].port, true, first), 0);
    EXPECT_EQ(serve(pool->cluster.members[1].port, true, second), 0);
    EXPECT_EQ(serve(pool->cluster.coordinator_port, true, coordinator), 0);
    base::Fd stranger;
    EXPECT_EQ(serve(pool->cluster.members[0].port, true, stranger), -EADDRINUSE);
  }
}

// In a network namespace of this thread half of all ports belong to sockets of another address.
bool take_half_of_the_ports(std::vector<base::Fd>& taken) {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  const base::Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  if (::ioctl(any.get(), SIOCSIFFLAGS, &loopback) != 0) return false;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  for (int port = first; port < last; ++port) {
    if (port / 2 % 2 == 0) continue;
    base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return false;
    taken.push_back(std::move(socket));
  }
  return true;
}

TEST(PortPool, APortOfAConnectionFromAnotherAddressIsNotGiven) {
  bool ready = false;
  std::thread apart([&] {
    std::vector<base::Fd> taken;
    if (!(ready = take_half_of_the_ports(taken))) return;
    auto pool = pool_of({{"worker", 20}});
    ASSERT_TRUE(pool.ok()) << pool.status().message();
    for (const MemberPorts& member : pool->cluster.members) {
      base::Fd server;
      EXPECT_EQ(serve(member.port, true, server), 0) << member.port;
    }
  });
  apart.join();
  if (!ready) GTEST_SKIP() << "no network namespace, or too few files: " << std::strerror(errno);
}

TEST(PortPool, KeepsOthersAway) {
  auto pool = pool_of({{"worker", 1}});
  ASSERT_TRUE(pool.ok());
  base::Fd stranger;
  EXPECT_EQ(serve(pool->cluster.members[0].port, false, stranger), -EADDRINUSE);
}

TEST(PortPool, GivesEveryMemberPortsOfItsOwn) {
  auto pool = pool_of({{"worker", 3, 0, {{"a", 2}, {"b", 1}}}, {"ps", 2}});
  ASSERT_TRUE(pool.ok());
  std::set<std::uint16_t> all{pool->cluster.coordinator_port};
  for (const MemberPorts& member : pool->cluster.members) {
    EXPECT_EQ(member.host, "127.0.0.1");
    all.insert(member.port);
    for (const auto& ports : member.labelled) all.insert(ports.begin(), ports.end());
  }
  EXPECT_EQ(pool->cluster.members[2].labelled[0].size(), 2U);
  EXPECT_EQ(all.size(), 1U + 3 * (1 + 2 + 1) + 2);
  for (const base::Fd& socket : pool->held.sockets)
    EXPECT_NE(::fcntl(socket.get(), F_GETFD) & FD_CLOEXEC, 0);
}

// Ports that were free a moment ago. Each process looks elsewhere first: another test takes no port
// that was found here.
std::uint16_t free_run(std::uint32_t length) {
  constexpr int kFirst = 22011, kRuns = 75, kApart = 100;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = static_cast<std::uint16_t>(kFirst + (::getpid() + run) % kRuns * kApart);
    std::vector<base::Fd> sockets(length);
    bool all = true;
    for (std::uint32_t i = 0; i < length; ++i) {
      all = all && serve(static_cast<std::uint16_t>(begin + i), true, sockets[i]) == 0;
    }
    if (all) return begin;
  }
  return 0;
}

TEST(PortPool, CountsFixedPortsFromBeginAt) {
  const std::uint16_t begin = free_run(4);
  ASSERT_NE(begin, 0);
  auto pool = pool_of({{"worker", 2, 0, {{"a", 2, begin}}}});
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  const auto port = [&](int i) { return static_cast<std::uint16_t>(begin + i); };
  EXPECT_EQ(pool->cluster.members[0].labelled[0], (std::vector<std::uint16_t>{port(0), port(1)}));
  EXPECT_EQ(pool->cluster.members[1].labelled[0], (std::vector<std::uint16_t>{port(2), port(3)}));
}

TEST(PortPool, SaysWhichFixedPortCannotBe) {
  EXPECT_EQ(pool_of({{"worker", 2, 0, {{"a", 1, 65535}}}}).status().message(),
            "role worker, ports a: port 65536 is above 65535");
  const std::uint16_t begin = free_run(3);
  ASSERT_NE(begin, 0);
  const auto next = static_cast<std::uint16_t>(begin + 1);
  EXPECT_EQ(pool_of({{"worker", 2, 0, {{"a", 1, begin}, {"b", 1, next}}}}).status().message(),
            "role worker, ports a: port " + std::to_string(next) + " is requested twice");
  base::Fd server;
  ASSERT_EQ(serve(begin, true, server), 0);
  EXPECT_THAT(pool_of({{"worker", 1, 0, {{"a", 1, begin}}}}).status().message(),
              HasSubstr("127.0.0.1:" + std::to_string(begin)));
}

TEST(PortPool, DealsThePortsOfEachHostToItsMembers) {
  const std::vector<Role> roles{{"ps", 1}, {"worker", 3, 0, {{"a", 1, 7000}}}};
  const std::vector<std::uint32_t> host_of{1, 0, 1, 1};
  const auto wanted = ports_wanted(roles, host_of, 3);
  ASSERT_TRUE(wanted.ok()) << wanted.status().message();
  const std::vector<std::vector<std::uint16_t>> all{{0, 7000}, {0, 0, 7001, 0, 7002, 0}, {}};
  EXPECT_EQ(*wanted, all);
  Cluster cluster{"", roles, {}, 0};
  give_ports(cluster, host_of, {{11, 7000}, {21, 22, 7001, 24, 7002, 26}, {}},
             {"10.0.0.1", "10.0.0.2", ""});
  EXPECT_EQ(cluster.members[0].host, "10.0.0.2");
  EXPECT_EQ(cluster.members[0].port, 21);
  EXPECT_EQ(cluster.members[1].host, "10.0.0.1");
  EXPECT_EQ(cluster.members[1].labelled[0], (std::vector<std::uint16_t>{7000}));
  EXPECT_EQ(cluster.members[3].port, 24);
  EXPECT_EQ(cluster.members[3].labelled[0], (std::vector<std::uint16_t>{7002}));
  EXPECT_EQ(cluster.coordinator_port, 26);  // where rank 0 is
}

TEST(PortPool, OfAFixedPortThereIsOneOnEachHost) {
  const std::vector<Role> roles{{"ps", 1, 0, {{"a", 1, 7000}}}, {"worker", 1, 0, {{"b", 1, 7000}}}};
  EXPECT_TRUE(ports_wanted(roles, {0, 1}, 2).ok());
  EXPECT_EQ(ports_wanted(roles, {1, 1}, 2).status().message(),
            "role worker, ports b: port 7000 is requested twice");
}

TEST(PortPool, ReadsOnlyPorts) {
  EXPECT_EQ(*ports_from_json(ports_to_json({1, 65535})), (std::vector<std::uint16_t>{1, 65535}));
  for (const char* text : {"", "{", "[]", "{}", R"({"ports":1})", R"({"ports":[0]})",
                           R"({"ports":[65536]})", R"({"ports":["1"]})", R"({"ports":[-1]})"})
    EXPECT_EQ(ports_from_json(text).status().code(), base::Code::kDataLoss) << text;
}

}  // namespace
}  // namespace regroup::job
