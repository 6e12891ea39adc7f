// Messages in order and whole, memory bounded, peers that stop, lie or die.
#include "launcher/transport/secure_channel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/launcher/transport/net_test.h"

namespace regroup::transport {
namespace {

using std::chrono::milliseconds;

proto::Message numbered(int i, std::size_t size) {
  return {1, proto::Reply{true,
                          std::to_string(i) + std::string(size, static_cast<char>('a' + i % 26))}};
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

class SecureChannelTest : public testing::Test {
 protected:
  explicit SecureChannelTest(SecureChannelLimits limits = {})
      : server_(loop_, node(secret_, kServer), {.channel = limits}),
        client_(std::make_unique<Client>(loop_, node(secret_, kClient),
                                         connect_to(server_.listener.port()), kServer, limits)) {}
  // The server's side of the client, once it is there.
  SecureChannel& peer() {
    EXPECT_TRUE(run_until(loop_, [&] { return client_->opened && !server_.channels.empty(); }));
    return *server_.channels.at(0);
  }

  boost::asio::io_context loop_;
  std::shared_ptr<const JobSecret> secret_ = new_secret();
  Server server_;
  std::unique_ptr<Client> client_;
};

TEST_F(SecureChannelTest, SendsWhatWasQueuedBeforeTheHandshake) {
  for (int i = 0; i < 100; ++i) client_->channel->send(numbered(i, 1000));
  EXPECT_FALSE(client_->channel->authenticated());
  EXPECT_GT(client_->channel->queued(), 100'000U);
  ASSERT_TRUE(run_until(loop_, [&] { return server_.received.size() == 100; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(server_.received[i], numbered(i, 1000));
  EXPECT_EQ(client_->channel->queued(), 0U);
}

// Sends numbered messages as fast as the queue drains, and keeps no more than kMost of them in it.
class Source {
 public:
  static constexpr std::size_t kMost = 1 << 20, kSize = 500'000;
  Source(SecureChannel& channel, int count) : channel_(channel), count_(count) { feed(); }
  std::size_t most_queued = 0;

 private:
  void feed() {
    while (next_ < count_ && channel_.queued() <= kMost) channel_.send(numbered(next_++, kSize));
    most_queued = std::max(most_queued, channel_.queued());
    if (next_ < count_) channel_.when_queued_at_most(kMost, [this] { feed(); });
  }
  SecureChannel& channel_;
  const int count_;
  int next_ = 0;
};

// Checks numbered messages, and stops reading for a moment after every tenth.
class SlowSink {
 public:
  SlowSink(boost::asio::io_context& loop, SecureChannel& channel)
      : channel_(channel), timer_(loop) {
    channel.set_handlers({.message = [this](const proto::Message& m) { take(m); },
                          .closed = [this](const base::Status&) { ++closed; }});
  }
  int taken = 0, wrong = 0, closed = 0, pauses = 0;

 private:
  void take(const proto::Message& message) {
    if (paused_ || message != numbered(taken, Source::kSize)) ++wrong;
    if (++taken % 10 != 0) return;
    channel_.pause();
    paused_ = true;
    ++pauses;
    timer_.expires_after(milliseconds(5));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      paused_ = false;
      channel_.resume();
    });
  }
  SecureChannel& channel_;
  boost::asio::steady_timer timer_;
  bool paused_ = false;
};

TEST_F(SecureChannelTest, CarriesMuchBothWaysToSlowReadersInLittleMemory) {
  constexpr int kCount = 200;  // 100 MB each way
  SlowSink far(loop_, peer());
  SlowSink near(loop_, *client_->channel);
  [[maybe_unused]] const std::size_t before = resident_bytes();
  Source out(*client_->channel, kCount);
  Source back(peer(), kCount);
  std::size_t most = 0;
  ASSERT_TRUE(run_until(
      loop_,
      [&] {
        most = std::max(most, resident_bytes());
        return far.taken == kCount && near.taken == kCount;
      },
      std::chrono::seconds(60)));
  EXPECT_EQ(far.wrong + near.wrong + far.closed + near.closed, 0);
  EXPECT_EQ(far.pauses, kCount / 10);
  for (const Source* source : {&out, &back}) {
    EXPECT_GT(source->most_queued, Source::kSize);  // the reader was slower indeed
    EXPECT_LE(source->most_queued, Source::kMost + Source::kSize + 1000);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(most - std::min(most, before), 24U << 20);
#endif
}

TEST_F(SecureChannelTest, DeliversNothingWhilePaused) {
  peer().pause();
  client_->channel->send({1, proto::Query{}});
  boost::asio::steady_timer timer(loop_, milliseconds(50));
  bool passed = false;
  timer.async_wait([&](const boost::system::error_code&) { passed = true; });
  ASSERT_TRUE(run_until(loop_, [&] { return passed; }));
  EXPECT_TRUE(server_.received.empty());
  peer().resume();
  EXPECT_TRUE(run_until(loop_, [&] { return server_.received.size() == 1; }));
}

TEST_F(SecureChannelTest, GivesUpAPeerThatLetsTooMuchPileUp) {
  peer().pause();
  ASSERT_TRUE(run_until(loop_, [&] {
    client_->channel->send(numbered(0, 900'000));
    return !client_->closed.empty();
  }));
  EXPECT_EQ(client_->closed[0].code(), base::Code::kResourceExhausted);
  EXPECT_EQ(client_->channel->queued(), 0U);
}

TEST_F(SecureChannelTest, ClosesWhenAllWasTakenAndSaysNothingMore) {
  peer().pause();
  for (int i = 0; i < 10; ++i) client_->channel->send(numbered(i, 500'000));
  client_->channel->close_when_sent();
  client_->channel->send(numbered(10, 1));
  // Which nobody takes: no reason for a reset that loses the rest.
  peer().send({1, proto::Query{}});
  EXPECT_TRUE(client_->channel->open());
  peer().resume();
  ASSERT_TRUE(
      run_until(loop_, [&] { return !server_.closed.empty() && !client_->channel->open(); }));
  ASSERT_EQ(server_.received.size(), 10U);
  EXPECT_EQ(server_.received[9], numbered(9, 500'000));
  EXPECT_EQ(server_.closed[0].code(), base::Code::kPeerLost);
  EXPECT_TRUE(client_->received.empty() && client_->closed.empty());
}

TEST_F(SecureChannelTest, TakesNewHandlersFromWithinOne) {
  int first = 0, second = 0;
  peer().set_handlers({.message = [&](const proto::Message&) {
    ++first;
    peer().set_handlers({.message = [&](const proto::Message&) { ++second; }});
  }});
  for (int i = 0; i < 3; ++i) client_->channel->send(numbered(i, 10));
  EXPECT_TRUE(run_until(loop_, [&] { return second == 2; }));
  EXPECT_EQ(first, 1);
}

TEST_F(SecureChannelTest, MayBeClosedFromWithinAHandler) {
  peer().set_handlers({.message = [&](const proto::Message&) { peer().close(); },
                       .closed = [](const base::Status&) { FAIL() << "closed by ourselves"; }});
  for (int i = 0; i < 3; ++i) client_->channel->send(numbered(i, 10));
  EXPECT_TRUE(run_until(loop_, [&] { return !client_->closed.empty(); }));
  EXPECT_EQ(client_->closed[0].code(), base::Code::kPeerLost);
  EXPECT_NE(client_->closed[0].message().find("127.0.0.1:"), std::string::npos);
}

// A peer that has proved itself and then sends `bytes`, whatever they are.
base::Status after_handshake(boost::asio::io_context& loop, Server& server,
                             std::shared_ptr<const TlsContext> context,
                             std::span<const std::byte> bytes) {
  const base::Fd socket = connect_to(server.listener.port());
  auto session = TlsSession::client(std::move(context), socket.get(), kServer).value();
  const std::size_t before = server.channels.size();
  bool done = false;
  EXPECT_TRUE(run_until(loop, [&] {
    if (!done) done = session->handshake().value() == TlsSession::Want::kNothing;
    return done && server.channels.size() > before;
  }));
  while (!bytes.empty()) {
    auto written = session->write(bytes);
    if (!written.ok()) break;
    bytes = bytes.subspan(written->bytes);
    loop.restart();
    loop.poll();
  }
  EXPECT_TRUE(run_until(loop, [&] { return !server.closed.empty() && ended(socket); }));
  return server.closed.at(0);
}

TEST_F(SecureChannelTest, RefusesFramesThatAreTooLong) {
  std::vector<std::byte> bytes(4 << 20);
  const std::uint32_t length = proto::kMaxFrameBytes + 1;
  std::memcpy(bytes.data(), &length, sizeof length);
  EXPECT_EQ(after_handshake(loop_, server_, node(secret_, 8), bytes).code(), base::Code::kDataLoss);
  EXPECT_TRUE(server_.received.empty());
}

TEST_F(SecureChannelTest, RefusesFramesThatAreNoMessages) {
  auto bytes = proto::encode({1, proto::Query{}});
  auto bad = bytes;
  std::fill(bad.begin() + 4, bad.end(), std::byte{0xff});
  bytes.insert(bytes.end(), bad.begin(), bad.end());
  EXPECT_EQ(after_handshake(loop_, server_, node(secret_, 8), bytes).code(), base::Code::kDataLoss);
  EXPECT_EQ(server_.received.size(), 1U);  // the good one before it
}

// A process of its own that talks until it is killed.
[[noreturn]] void talk_for_ever(std::shared_ptr<const TlsContext> context, std::uint16_t port) {
  boost::asio::io_context loop;
  Client client(loop, std::move(context), connect_to(port));
  std::function<void()> feed = [&] {
    while (client.channel->queued() < 1 << 20) client.channel->send(numbered(0, 100'000));
    client.channel->when_queued_at_most(1 << 19, feed);
  };
  feed();
  loop.run_for(kDeadline);
  ::_exit(0);
}

TEST_F(SecureChannelTest, SaysAtOnceThatAPeerWasKilled) {
  client_->channel->close();
  const auto context = node(secret_, 9);
  const std::uint16_t port = server_.listener.port();
  const pid_t child = ::fork();
  if (child == 0) talk_for_ever(context, port);
  ASSERT_TRUE(run_until(loop_, [&] { return server_.received.size() > 20; }));
  server_.closed.clear();
  ::kill(child, SIGKILL);
  EXPECT_TRUE(run_until(
      loop_, [&] { return !server_.closed.empty(); }, std::chrono::seconds(4)));
  EXPECT_EQ(server_.closed.at(0).code(), base::Code::kPeerLost) << server_.closed[0].to_string();
  ::waitpid(child, nullptr, 0);
}

class ImpatientChannelTest : public SecureChannelTest {
 protected:
  ImpatientChannelTest() : SecureChannelTest({.silence = milliseconds(400)}) {}
};

TEST_F(ImpatientChannelTest, KeepsAPeerThatLivesButDoesNotRead) {
  peer().pause();
  int sent = 0;
  while (client_->channel->queued() < 2 << 20) client_->channel->send(numbered(sent++, 500'000));
  // Four times the silence that ends a dead one.
  boost::asio::steady_timer timer(loop_, milliseconds(1600));
  bool passed = false;
  timer.async_wait([&](const boost::system::error_code&) { passed = true; });
  ASSERT_TRUE(run_until(loop_, [&] { return passed; }));
  EXPECT_TRUE(client_->closed.empty()) << client_->closed[0].to_string();
  EXPECT_GT(client_->channel->queued(), 1U << 20);
  peer().resume();
  EXPECT_TRUE(
      run_until(loop_, [&] { return server_.received.size() == static_cast<std::size_t>(sent); }));
}

}  // namespace
}  // namespace regroup::transport
