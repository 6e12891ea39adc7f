// Only a live peer that has the job's secret and names the node that it wants is accepted.
#include "launcher/transport/tls_session.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <csignal>
#include <optional>
#include <thread>

#include "tests/launcher/transport/net_test.h"

namespace regroup::transport {
namespace {

TEST(LinkName, ReadsBackWhatItWrote) {
  const LinkName name{"job.1-a_B", 3, 4294967295};
  EXPECT_EQ(name.to_string(), "regroup1 job.1-a_B 3 4294967295");
  EXPECT_EQ(LinkName::parse(name.to_string()), name);
}

TEST(LinkName, RefusesWhatItWouldNotWrite) {
  for (const std::string text :
       {"", "regroup1", "regroup1 ", "regroup1 j", "regroup1 j 1", "regroup1 j 1 ",
        "regroup1 j 1 2 ", "regroup1 j 1 2 3", "regroup1  1 2", "regroup1 j 01 2",
        "regroup1 j +1 2", "regroup1 j -1 2", "regroup1 j 1 4294967296", "regroup2 j 1 2",
        "regroup1 j/k 1 2", "REGROUP1 j 1 2", "regroup1 j 1\n2"}) {
    EXPECT_EQ(LinkName::parse(text), std::nullopt) << text;
  }
  EXPECT_EQ(LinkName::parse("regroup1 " + std::string(65, 'j') + " 1 2"), std::nullopt);
  EXPECT_EQ(LinkName::parse(std::string("regroup1 j\0k 1 2", 16)), std::nullopt);
}

TEST(TlsContext, RefusesAJobThatIsNoName) {
  for (const std::string job : {"", "a b", "a\n"}) {
    EXPECT_EQ(TlsContext::make(job, 0, new_secret()).code(), base::Code::kInvalidArgument);
  }
  EXPECT_EQ(TlsContext::make(std::string(65, 'a'), 0, new_secret()).code(),
            base::Code::kInvalidArgument);
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() : server_(loop_, node(secret_, kServer)) {}

  base::Fd connect() { return connect_to(server_.listener.port()); }
  // The server has sent somebody away, and let nobody in.
  void expect_turned_away(const base::Fd& socket) {
    EXPECT_TRUE(run_until(loop_, [&] { return server_.listener.rejected() == 1; }));
    EXPECT_TRUE(run_until(loop_, [&] { return ended(socket); }));
    expect_nobody();
  }
  void expect_nobody() {
    EXPECT_TRUE(server_.channels.empty());
    EXPECT_TRUE(server_.received.empty());
    EXPECT_EQ(server_.listener.unauthenticated(), 0U);
  }
  // Both sides of a client that is to be refused.
  base::Status refused(std::shared_ptr<const TlsContext> context, proto::NodeId to = kServer) {
    Client client(loop_, std::move(context), connect(), to);
    client.channel->send({1, proto::Query{}});
    EXPECT_TRUE(run_until(loop_, [&] { return !client.closed.empty(); }));
    EXPECT_FALSE(client.opened);
    EXPECT_TRUE(run_until(loop_, [&] { return server_.listener.rejected() == 1; }));
    expect_nobody();
    return client.closed.at(0);
  }

  boost::asio::io_context loop_;
  std::shared_ptr<const JobSecret> secret_ = new_secret();
  Server server_;
};

TEST_F(TlsTest, LetsInWhoHasTheSecretAndNamesIt) {
  Client client(loop_, node(secret_, kClient), connect());
  const proto::Message message{3, proto::Revoke{9}};
  client.channel->send(message);
  ASSERT_TRUE(
      run_until(loop_, [&] { return !server_.received.empty() || !client.closed.empty(); }));
  ASSERT_TRUE(client.closed.empty())
      << client.closed[0].to_string() << "; " << server_.listener.last_reason().to_string();
  EXPECT_EQ(server_.received, std::vector{message});
  EXPECT_EQ(server_.channels.at(0)->peer(), kClient);
  EXPECT_EQ(client.channel->peer(), kServer);
  EXPECT_TRUE(client.opened);
  server_.channels[0]->send(message);
  ASSERT_TRUE(run_until(loop_, [&] { return !client.received.empty(); }));
  EXPECT_EQ(client.received, std::vector{message});
}

TEST_F(TlsTest, RefusesAnotherSecret) {
  EXPECT_EQ(refused(node(new_secret(), kClient)).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(server_.listener.last_reason().code(), base::Code::kInvalidArgument);
}

TEST_F(TlsTest, RefusesAnotherJobOfTheSameSecret) {
  EXPECT_EQ(refused(node(secret_, kClient, "job-2")).code(), base::Code::kInvalidArgument);
}

TEST_F(TlsTest, RefusesWhoWantedAnotherNode) {
  EXPECT_EQ(refused(node(secret_, kClient), kServer + 1).code(), base::Code::kInvalidArgument);
}

TEST_F(TlsTest, RefusesPlainBytes) {
  for (const bool frame : {true, false}) {
    const auto bytes = proto::encode({1, proto::Query{}});
    const std::string text = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    const base::Fd socket = connect();
    const auto sent = frame ? ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL)
                            : ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    const std::uint64_t before = server_.listener.rejected();
    EXPECT_TRUE(run_until(loop_, [&] { return server_.listener.rejected() == before + 1; }));
    EXPECT_TRUE(run_until(loop_, [&] { return ended(socket); }));
    expect_nobody();
  }
}

class ForeignTlsTest : public TlsTest, public testing::WithParamInterface<int> {};

TEST_P(ForeignTlsTest, IsRefusedByOurServer) {
  const base::Fd socket = connect();
  std::atomic<bool> done = false, good = true;
  std::thread stranger([&] {
    good = ForeignTls(false, GetParam()).shake_hands(socket);
    done = true;
  });
  EXPECT_TRUE(run_until(loop_, [&] { return server_.listener.rejected() == 1 && done; }));
  stranger.join();
  EXPECT_FALSE(good);
  expect_nobody();
}

TEST_P(ForeignTlsTest, IsRefusedByOurClient) {
  auto listening = listen_tcp(0);
  ASSERT_TRUE(listening.ok());
  Client client(loop_, node(secret_, kClient), connect_to(*port_of(*listening)));
  client.channel->send({1, proto::Query{}});
  const base::Fd socket(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::thread stranger(
      [&] { static_cast<void>(ForeignTls(true, GetParam()).shake_hands(socket)); });
  EXPECT_TRUE(run_until(loop_, [&] { return !client.closed.empty(); }));
  stranger.join();
  EXPECT_FALSE(client.opened);
  EXPECT_EQ(client.closed.at(0).code(), base::Code::kInvalidArgument)
      << client.closed[0].to_string();
}

INSTANTIATE_TEST_SUITE_P(Versions, ForeignTlsTest, testing::Values(TLS1_3_VERSION, TLS1_2_VERSION));

// Two sessions with the test as the wire between them, which keeps what the client sent.
class Wire {
 public:
  Wire(std::shared_ptr<const TlsContext> client, std::shared_ptr<const TlsContext> server) {
    for (auto* pair : {&near_, &far_}) {
      std::array<int, 2> fds{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()),
                0);
      pair->first.reset(fds[0]);
      pair->second.reset(fds[1]);
    }
    client_ = TlsSession::client(std::move(client), near_.first.get(), kServer).value();
    server_ = TlsSession::server(std::move(server), far_.first.get()).value();
  }

  // The handshake, then `message`; what crossed from client to server.
  std::vector<std::byte> record(std::span<const std::byte> message) {
    bool client_done = false, server_done = false;
    for (int turn = 0; turn < 100 && !(client_done && server_done); ++turn) {
      if (!client_done) client_done = *client_->handshake() == TlsSession::Want::kNothing;
      carry();
      if (!server_done) server_done = *server_->handshake() == TlsSession::Want::kNothing;
      carry();
    }
    EXPECT_TRUE(client_done && server_done);
    EXPECT_EQ(client_->write(message)->bytes, message.size());
    carry();
    std::vector<std::byte> got(message.size());
    EXPECT_EQ(server_->read(got)->bytes, message.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), message.begin()));
    return recorded_;
  }

 private:
  void carry() {
    std::byte bytes[32 << 10];
    ssize_t count = 0;
    while ((count = ::recv(near_.second.get(), bytes, sizeof bytes, 0)) > 0) {
      recorded_.insert(recorded_.end(), bytes, bytes + count);
      EXPECT_EQ(::send(far_.second.get(), bytes, static_cast<std::size_t>(count), 0), count);
    }
    while ((count = ::recv(far_.second.get(), bytes, sizeof bytes, 0)) > 0) {
      EXPECT_EQ(::send(near_.second.get(), bytes, static_cast<std::size_t>(count), 0), count);
    }
  }

  std::pair<base::Fd, base::Fd> near_, far_;
  std::unique_ptr<TlsSession> client_, server_;
  std::vector<std::byte> recorded_;
};

TEST_F(TlsTest, RefusesRecordedBytes) {
  Wire wire(node(secret_, kClient), node(secret_, kServer));
  const auto recorded = wire.record(proto::encode({1, proto::Query{}}));
  const base::Fd socket = connect();
  ASSERT_EQ(::send(socket.get(), recorded.data(), recorded.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(recorded.size()));
  expect_turned_away(socket);
}

TEST_F(TlsTest, RefusesToBeLedBackToItself) {
  // Node kServer dials its parent, but somebody connects it to its own listener.
  EXPECT_EQ(refused(node(secret_, kServer), kServer + 1).code(), base::Code::kInvalidArgument);
}

TEST_F(TlsTest, BoundsWhatAStrangerMaySay) {
  // A handshake message of 16 MB, announced and then sent in good records.
  std::vector<unsigned char> bytes;
  for (int i = 0; i < 8; ++i) {
    const unsigned char head[] = {22, 3, 1, 0x3f, 0xff};
    bytes.insert(bytes.end(), std::begin(head), std::end(head));
    bytes.resize(bytes.size() + 0x3fff, i == 0 ? 1 : 0);
    if (i == 0) bytes[6] = bytes[7] = bytes[8] = 0xff;
  }
  const base::Fd socket = connect();
  ASSERT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  expect_turned_away(socket);
}

TEST_F(TlsTest, SendsNoSignalToWriteToADeadPeer) {
  ASSERT_EQ(::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  const base::Fd mine(fds[0]);
  ::close(fds[1]);
  auto session = TlsSession::client(node(secret_, kClient), mine.get(), kServer);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->handshake().code(), base::Code::kPeerLost);
}

}  // namespace
}  // namespace regroup::transport
