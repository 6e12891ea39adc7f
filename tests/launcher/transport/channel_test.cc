// Frames, descriptors and bad peers on a Channel; peers on a Listener.
#include "launcher/transport/channel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/transport/ancillary.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::transport {
namespace {

constexpr std::chrono::seconds kLimit{10};

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    channel_ = std::make_shared<Channel>(
        loop_, base::Fd(fds[0]),
        [this](const proto::Message& message) {
          received_.push_back(message);
          if (!peer_.valid() || received_.size() == wanted_) loop_.stop();
        },
        [this](const base::Status& why) {
          closed_.push_back(why);
          loop_.stop();
        });
    peer_.reset(fds[1]);
    channel_->start();
  }
  ~ChannelTest() override {
    channel_->close();
    loop_.restart();
    loop_.poll();
  }
  void run() {
    loop_.restart();
    loop_.run_for(kLimit);
  }
  void write_to_peer(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  boost::asio::io_context loop_;
  std::shared_ptr<Channel> channel_;
  base::Fd peer_;
  std::size_t wanted_ = 1;
  std::vector<proto::Message> received_;
  std::vector<base::Status> closed_;
};

TEST_F(ChannelTest, DeliversMessagesThatComeInPieces) {
  const proto::Message first{1, proto::Revoke{7}};
  const proto::Message second{2, proto::Query{}};
  std::vector<std::byte> bytes = proto::encode(first);
  const std::vector<std::byte> more = proto::encode(second);
  bytes.insert(bytes.end(), more.begin(), more.end());
  wanted_ = 2;
  write_to_peer(std::span(bytes).first(5));
  loop_.poll();
  EXPECT_TRUE(received_.empty());
  write_to_peer(std::span(bytes).subspan(5));
  run();
  EXPECT_EQ(received_, (std::vector<proto::Message>{first, second}));
}

TEST_F(ChannelTest, ClosesOnceWhenTheBytesAreNoMessage) {
  const std::array<std::byte, 64> garbage{std::byte{8}, {}, {}, {}, std::byte{0xff}};
  write_to_peer(garbage);
  run();
  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_EQ(closed_[0].code(), base::Code::kDataLoss);
  EXPECT_FALSE(channel_->open());
  char byte = 0;
  EXPECT_EQ(::recv(peer_.get(), &byte, 1, 0), 0);
}

TEST_F(ChannelTest, SaysThatThePeerIsGone) {
  peer_.reset();
  run();
  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_EQ(closed_[0].code(), base::Code::kPeerLost);
}

TEST_F(ChannelTest, PassesADescriptorBesideItsMessage) {
  const base::Fd memory(::memfd_create("passed", MFD_CLOEXEC));
  ASSERT_EQ(::write(memory.get(), "hello", 5), 5);
  channel_->send({1, proto::Welcome{3, 4, 5}}, memory.get());
  std::array<std::byte, 4096> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Ancillary ancillary;
  ancillary.expect(message);
  const ssize_t count = ::recvmsg(peer_.get(), &message, MSG_CMSG_CLOEXEC);
  ASSERT_GT(count, 4);
  const base::Fd got = Ancillary::taken(message);
  std::array<char, 5> text{};
  EXPECT_EQ(::pread(got.get(), text.data(), 5, 0), 5);
  EXPECT_EQ(std::string(text.data(), 5), "hello");
  auto welcome = proto::decode(std::vector(bytes.begin() + 4, bytes.begin() + count));
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->body, proto::Body(proto::Welcome{3, 4, 5}));
}

TEST_F(ChannelTest, DeliversALongQueueToASlowReader) {
  const std::string text(100'000, 'x');
  constexpr int kMessages = 20;
  std::size_t sent = 0;
  for (int i = 0; i < kMessages; ++i) {
    const proto::Message message{1, proto::Reply{true, text + std::to_string(i)}};
    sent += proto::encode(message).size();
    channel_->send(message);
  }
  channel_->close_when_sent();
  EXPECT_TRUE(channel_->open());
  proto::FrameReader reader;
  std::vector<std::byte> block(30'000);
  for (std::size_t got = 0; got < sent;) {
    const ssize_t count = ::recv(peer_.get(), block.data(), block.size(), 0);
    ASSERT_GT(count, 0);
    got += static_cast<std::size_t>(count);
    reader.append(std::span(block).first(static_cast<std::size_t>(count)));
    loop_.restart();
    loop_.poll();
  }
  for (int i = 0; i < kMessages; ++i) {
    auto message = reader.next();
    ASSERT_TRUE(message.ok() && message->has_value());
    EXPECT_EQ((*message)->body, proto::Body(proto::Reply{true, text + std::to_string(i)}));
  }
  EXPECT_FALSE(channel_->open());
}

TEST_F(ChannelTest, CallsNoHandlerOnceItIsToBeClosed) {
  const proto::Message large{1, proto::Reply{true, std::string(900'000, 'x')}};
  channel_->send(large);
  channel_->close_when_sent();
  ASSERT_TRUE(channel_->open());
  write_to_peer(proto::encode({1, proto::Query{}}));
  loop_.restart();
  loop_.poll();
  peer_.reset();
  run();
  EXPECT_TRUE(received_.empty());
  EXPECT_TRUE(closed_.empty());
  EXPECT_FALSE(channel_->open());
}

TEST_F(ChannelTest, GivesUpAPeerThatNeverReads) {
  const proto::Message message{1, proto::Reply{true, std::string(500'000, 'x')}};
  for (int i = 0; i < 100 && channel_->open(); ++i) channel_->send(message);
  EXPECT_FALSE(channel_->open());
  ASSERT_EQ(closed_.size(), 1U);
  EXPECT_EQ(closed_[0].code(), base::Code::kResourceExhausted);
}

class UnixSocket : public testing::Test {
 protected:
  UnixSocket() {
    char name[] = "/tmp/unix-socket-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~UnixSocket() override {
    ::unlink((folder_ + "/s").c_str());
    ::rmdir((folder_ + "/private").c_str());
    ::rmdir(folder_.c_str());
  }
  std::string folder_;
};

TEST_F(UnixSocket, ListenerNamesThePeer) {
  boost::asio::io_context loop;
  pid_t seen = 0;
  Listener listener(loop, [&](base::Fd, pid_t peer) {
    seen = peer;
    loop.stop();
  });
  ASSERT_TRUE(listener.start(folder_ + "/s").ok());
  auto client = connect_unix(folder_ + "/s");
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  loop.run_for(kLimit);
  EXPECT_EQ(seen, ::getpid());
}

// A job's folder keeps others out as well; this one can be entered. The one who is served came
// second.
TEST_F(UnixSocket, ListenerServesNoOtherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can connect as another user";
  boost::asio::io_context loop;
  std::vector<pid_t> served;
  Listener listener(loop, [&](base::Fd, pid_t peer) {
    served.push_back(peer);
    if (peer == ::getpid()) loop.stop();
  });
  const std::string path = folder_ + "/s";
  ASSERT_TRUE(listener.start(path).ok());
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::alarm(kLimit.count());
    const bool became = ::setgid(65534) == 0 && ::setuid(65534) == 0;
    ::_exit(became && connect_unix(path).ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  ASSERT_EQ(status, 0) << "it did not come in";
  auto own = connect_unix(path);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  loop.run_for(kLimit);
  EXPECT_EQ(served, std::vector<pid_t>{::getpid()});
}

TEST_F(UnixSocket, ListenerTakesOverFromAPredecessor) {
  boost::asio::io_context loop;
  {
    Listener dead(loop, [](base::Fd, pid_t) {});
    ASSERT_TRUE(dead.start(folder_ + "/s").ok());
  }
  EXPECT_FALSE(connect_unix(folder_ + "/s").ok());
  Listener next(loop, [](base::Fd, pid_t) {});
  ASSERT_TRUE(next.start(folder_ + "/s").ok());
  EXPECT_TRUE(connect_unix(folder_ + "/s").ok());
}

TEST_F(UnixSocket, PrivateFolderRefusesWhatOthersCanRead) {
  const std::string path = folder_ + "/private";
  EXPECT_TRUE(make_private_folder(path).ok());
  EXPECT_TRUE(make_private_folder(path).ok());
  ::chmod(path.c_str(), 0755);
  EXPECT_EQ(make_private_folder(path).code(), base::Code::kInvalidArgument);
}

TEST_F(UnixSocket, RefusesANameThatIsTooLong) {
  const auto result = connect_unix("/tmp/" + std::string(200, 'x'));
  EXPECT_EQ(result.code(), base::Code::kInvalidArgument);
}

}  // namespace
}  // namespace regroup::transport
