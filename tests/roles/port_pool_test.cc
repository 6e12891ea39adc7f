// Held ports: free for a server that asks for them, again and again, and for nobody by chance.
#include "launcher/roles/port_pool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>

namespace regroup::launcher {
namespace {

using testing::HasSubstr;

// A server on all addresses, as gRPC's; the descriptor, or the errno as a negative number.
int serve(std::uint16_t port, bool reuse, core::Fd& socket) {
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
  auto pool = hold_ports({{"worker", 2}});
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  for (int life = 0; life < 3; ++life) {
    core::Fd first, second, coordinator;
    EXPECT_EQ(serve(pool->members[0].port, true, first), 0);
    EXPECT_EQ(serve(pool->members[1].port, true, second), 0);
    EXPECT_EQ(serve(pool->coordinator_port, true, coordinator), 0);
    core::Fd stranger;
    EXPECT_EQ(serve(pool->members[0].port, true, stranger), -EADDRINUSE);
  }
}

TEST(PortPool, KeepsOthersAway) {
  auto pool = hold_ports({{"worker", 1}});
  ASSERT_TRUE(pool.ok());
  core::Fd stranger;
  EXPECT_EQ(serve(pool->members[0].port, false, stranger), -EADDRINUSE);
}

TEST(PortPool, GivesEveryMemberPortsOfItsOwn) {
  auto pool = hold_ports({{"worker", 3, 0, {{"a", 2}, {"b", 1}}}, {"ps", 2}});
  ASSERT_TRUE(pool.ok());
  std::set<std::uint16_t> all{pool->coordinator_port};
  for (const MemberPorts& member : pool->members) {
    EXPECT_EQ(member.host, "127.0.0.1");
    all.insert(member.port);
    for (const auto& ports : member.labelled) all.insert(ports.begin(), ports.end());
  }
  EXPECT_EQ(pool->members[2].labelled[0].size(), 2U);
  EXPECT_EQ(all.size(), 1U + 3 * (1 + 2 + 1) + 2);
  for (const core::Fd& socket : pool->sockets) EXPECT_NE(::fcntl(socket.get(), F_GETFD) & FD_CLOEXEC, 0);
}

// Ports that were free a moment ago.
std::uint16_t free_run(std::uint32_t length) {
  for (std::uint16_t begin = 20011; begin < 30000; begin += 100) {
    std::vector<core::Fd> sockets(length);
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
  auto pool = hold_ports({{"worker", 2, 0, {{"a", 2, begin}}}});
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  const auto port = [&](int i) { return static_cast<std::uint16_t>(begin + i); };
  EXPECT_EQ(pool->members[0].labelled[0], (std::vector<std::uint16_t>{port(0), port(1)}));
  EXPECT_EQ(pool->members[1].labelled[0], (std::vector<std::uint16_t>{port(2), port(3)}));
}

TEST(PortPool, SaysWhichFixedPortCannotBe) {
  EXPECT_EQ(hold_ports({{"worker", 2, 0, {{"a", 1, 65535}}}}).status().message(),
            "role worker, ports a: port 65536 is above 65535");
  const std::uint16_t begin = free_run(3);
  ASSERT_NE(begin, 0);
  const auto next = static_cast<std::uint16_t>(begin + 1);
  EXPECT_EQ(hold_ports({{"worker", 2, 0, {{"a", 1, begin}, {"b", 1, next}}}}).status().message(),
            "role worker, ports a: port " + std::to_string(next) + " is asked for twice");
  core::Fd server;
  ASSERT_EQ(serve(begin, true, server), 0);
  EXPECT_THAT(hold_ports({{"worker", 1, 0, {{"a", 1, begin}}}}).status().message(),
              HasSubstr("127.0.0.1:" + std::to_string(begin)));
}

}  // namespace
}  // namespace regroup::launcher
