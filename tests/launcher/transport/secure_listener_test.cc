// Unauthenticated connections that flood, stall and hang: a peer with the secret gets in, and they
// leave nothing behind.
#include "launcher/transport/secure_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "tests/launcher/transport/net_test.h"

namespace regroup::transport {
namespace {

using std::chrono::milliseconds;

class SecureListenerTest : public testing::Test {
 protected:
  SecureListenerTest() {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  boost::asio::io_context loop_;
  std::shared_ptr<const JobSecret> secret_ = new_secret();
};

// A ClientHello that begins well and never ends, or nothing at all.
std::vector<base::Fd> half_open(std::uint16_t port, int count) {
  const unsigned char begin[] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
  std::vector<base::Fd> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(connect_to(port));
    if (i % 2 == 0) ::send(sockets.back().get(), begin, sizeof begin, MSG_NOSIGNAL);
  }
  return sockets;
}

TEST_F(SecureListenerTest, LetsAGoodPeerInPastAThousandHalfOpenConnections) {
  // No stranger's time is over before kDeadline.
  const SecureChannelLimits limits{.handshake = 3 * kDeadline};
  Server server(loop_, node(secret_, kServer), {.channel = limits});
  const auto connections = half_open(server.listener.port(), 1000);
  Client client(loop_, node(secret_, kClient), connect_to(server.listener.port()), kServer, limits);
  // And they go on coming while it shakes hands.
  std::vector<base::Fd> more;
  ASSERT_TRUE(run_until(loop_, [&] {
    if (more.size() < 1000) more.push_back(connect_to(server.listener.port()));
    return client.opened && server.channels.size() == 1;
  }));
  EXPECT_LE(server.listener.unauthenticated(), SecureListenerLimits().unauthenticated);
  EXPECT_GE(server.listener.rejected(), 1000U - SecureListenerLimits().unauthenticated);
  EXPECT_TRUE(client.closed.empty());
}

TEST_F(SecureListenerTest, EndsStrangersThatTakeTooLong) {
  Server server(loop_, node(secret_, kServer), {.channel = {.handshake = milliseconds(200)}});
  const auto connections = half_open(server.listener.port(), 10);
  EXPECT_TRUE(run_until(
      loop_, [&] { return server.listener.rejected() == 10; }, std::chrono::seconds(5)));
  for (const base::Fd& connection : connections) EXPECT_TRUE(ended(connection));
  EXPECT_EQ(server.listener.last_reason().code(), base::Code::kDeadlineExceeded);
}

// Sends a good ClientHello one byte at a time.
TEST_F(SecureListenerTest, EndsASlowLoris) {
  Server server(loop_, node(secret_, kServer), {.channel = {.handshake = milliseconds(300)}});
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
  const base::Fd near(fds[0]), far(fds[1]);
  auto session = TlsSession::client(node(secret_, kClient), near.get(), kServer).value();
  ASSERT_EQ(session->handshake().value(), TlsSession::Want::kRead);
  std::array<char, 4096> hello;
  const ssize_t size = ::recv(far.get(), hello.data(), hello.size(), 0);
  ASSERT_GT(size, 150);
  const base::Fd socket = connect_to(server.listener.port());
  boost::asio::steady_timer timer(loop_);
  ssize_t sent = 0;
  std::function<void(const boost::system::error_code&)> drip =
      [&](const boost::system::error_code& error) {
        if (error || sent == size) return;
        ::send(socket.get(), &hello.at(static_cast<std::size_t>(sent++)), 1, MSG_NOSIGNAL);
        timer.expires_after(milliseconds(10));
        timer.async_wait(drip);
      };
  drip({});
  EXPECT_TRUE(run_until(
      loop_, [&] { return ended(socket); }, std::chrono::seconds(5)));
  EXPECT_LT(sent, size);
  EXPECT_EQ(server.listener.last_reason().code(), base::Code::kDeadlineExceeded);
  timer.cancel();
}

TEST_F(SecureListenerTest, KeepsNoDescriptorsOfStrangers) {
  Server server(loop_, node(secret_, kServer), {.channel = {.handshake = milliseconds(50)}});
  const int before = ::dup(0);
  ::close(before);
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t turned = server.listener.rejected();
    auto connections = half_open(server.listener.port(), 100);
    ASSERT_TRUE(run_until(loop_, [&] { return server.listener.rejected() == turned + 100; }));
  }
  loop_.restart();
  loop_.poll();
  const int after = ::dup(0);
  ::close(after);
  EXPECT_EQ(after, before);
}

TEST_F(SecureListenerTest, GoesOnWhenTheProcessHasNoMoreDescriptors) {
  Server server(loop_, node(secret_, kServer));
  const base::Fd waiting = connect_to(server.listener.port());
  std::vector<base::Fd> all;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlimit few{256, files.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) all.emplace_back(fd);
  boost::asio::steady_timer timer(loop_, milliseconds(100));
  bool passed = false;
  timer.async_wait([&](const boost::system::error_code&) { passed = true; });
  ASSERT_TRUE(run_until(loop_, [&] { return passed; }));
  EXPECT_EQ(server.listener.rejected(), 0U);
  all.clear();
  ::setrlimit(RLIMIT_NOFILE, &files);
  Client client(loop_, node(secret_, kClient), connect_to(server.listener.port()));
  EXPECT_TRUE(run_until(loop_, [&] { return server.channels.size() == 1; }));
}

TEST(Dial, TriesEachAddressAndSaysWhyNot) {
  boost::asio::io_context loop;
  auto listening = listen_tcp(0);
  ASSERT_TRUE(listening.ok());
  auto gone = listen_tcp(0);
  const auto dead = parse_endpoints(fmt::format("127.0.0.1:{}", *port_of(*gone))).value();
  gone->reset();
  auto both = dead;
  both.push_back(parse_endpoints(fmt::format("127.0.0.1:{}", *port_of(*listening))).value().at(0));
  std::optional<base::Result<base::Fd>> got;
  dial(loop, both, kDeadline, [&](base::Result<base::Fd> fd) { got.emplace(std::move(fd)); });
  EXPECT_TRUE(run_until(loop, [&] { return got.has_value(); }));
  EXPECT_TRUE(got->ok());
  got.reset();
  dial(loop, dead, kDeadline, [&](base::Result<base::Fd> fd) { got.emplace(std::move(fd)); });
  EXPECT_TRUE(run_until(loop, [&] { return got.has_value(); }));
  EXPECT_EQ(got->status().message(), "connect: " + to_string(dead) + ": Connection refused");
}

// Its queue of connections is full, so the kernel answers no more.
struct Silent {
  Silent() : socket(listen_tcp(0).value()), port(port_of(socket).value()) {
    ::listen(socket.get(), 0);
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const auto there = parse_endpoints(fmt::format("127.0.0.1:{}", port)).value().at(0);
      static_cast<void>(
          ::connect(callers.back().get(), there.data(), static_cast<socklen_t>(there.size())));
    }
  }
  base::Fd socket;
  std::uint16_t port;
  std::vector<base::Fd> callers;
};

TEST(Dial, AnAddressThatDoesNotAnswerLeavesTheOthersTheirTime) {
  boost::asio::io_context loop;
  const Silent silent;
  auto listening = listen_tcp(0);
  ASSERT_TRUE(listening.ok());
  const auto mute = parse_endpoints(fmt::format("127.0.0.1:{}", silent.port)).value();
  auto both = mute;
  both.push_back(parse_endpoints(fmt::format("127.0.0.1:{}", *port_of(*listening))).value().at(0));
  std::optional<base::Result<base::Fd>> got;
  const auto begun = std::chrono::steady_clock::now();
  dial(loop, both, std::chrono::hours(1),
       [&](base::Result<base::Fd> fd) { got.emplace(std::move(fd)); });
  EXPECT_TRUE(run_until(loop, [&] { return got.has_value(); }));
  EXPECT_TRUE(got->ok());
  got.reset();
  dial(loop, mute, milliseconds(1500),
       [&](base::Result<base::Fd> fd) { got.emplace(std::move(fd)); });
  EXPECT_TRUE(run_until(loop, [&] { return got.has_value(); }));
  EXPECT_EQ(got->status().message(), "connect: " + to_string(mute) + ": no answer");
  EXPECT_EQ(got->status().code(), base::Code::kUnavailable);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(1500));
}

TEST(Dial, DoesNotTakeLoopbackForAnAddressThatDoesNotAnswer) {
  boost::asio::io_context loop;
  const Silent silent;
  const auto other = own_endpoints(silent.port).value().front();
  if (other.address().is_loopback()) GTEST_SKIP() << "this host has no interface but loopback";
  auto listening = listen_tcp(0);
  ASSERT_TRUE(listening.ok());
  const auto loopback =
      parse_endpoints(fmt::format("127.0.0.1:{}", *port_of(*listening))).value().at(0);
  std::optional<base::Result<base::Fd>> got;
  dial(loop, {other, loopback}, milliseconds(600),
       [&](base::Result<base::Fd> fd) { got.emplace(std::move(fd)); });
  EXPECT_TRUE(run_until(loop, [&] { return got.has_value(); }));
  EXPECT_EQ(got->status().message(), "connect: " + to_string(std::vector{other}) + ": no answer");
}

TEST(Endpoints, ReadBackAndRefuse) {
  const std::string text = "10.0.0.1:4711,[fe80::1]:80";
  EXPECT_EQ(to_string(parse_endpoints(text).value()), text);
  for (const std::string bad : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536",
                                "node1:80", "10.0.0.1:1,", "10.0.0.1:1x"}) {
    EXPECT_EQ(parse_endpoints(bad).code(), base::Code::kInvalidArgument) << bad;
  }
  const auto own = own_endpoints(9);
  ASSERT_TRUE(own.ok() && !own->empty());
  EXPECT_TRUE(own->back().address().is_loopback());
  EXPECT_EQ(own->back().port(), 9);
}

}  // namespace
}  // namespace regroup::transport
