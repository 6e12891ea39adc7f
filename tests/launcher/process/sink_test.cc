// A Sink never blocks, loses nothing, and leaves the flags of the borrowed descriptor alone.
#include "launcher/process/sink.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

namespace regroup::process {
namespace {

struct Pair {
  base::Fd read, write;
};

Pair make_pipe() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  return {base::Fd(fds[0]), base::Fd(fds[1])};
}

Pair make_sockets() {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {base::Fd(fds[0]), base::Fd(fds[1])};
}

std::string take(int fd, std::size_t bytes) {
  std::string out(bytes, '\0');
  out.resize(static_cast<std::size_t>(::read(fd, out.data(), bytes)));
  return out;
}

void outlasts_a_slow_reader(Pair pair) {
  boost::asio::io_context loop;
  Sink sink(loop, pair.write.get());
  std::string expected;
  for (int i = 0; i < 1000; ++i)
    expected += std::string(5000, static_cast<char>('a' + i % 26)) + "\n";
  sink.write(expected);  // five megabytes: more than any pipe takes
  ASSERT_TRUE(sink.congested());
  EXPECT_GT(sink.kept(), expected.size() / 2);
  bool resumed = false;
  sink.when_free([&] { resumed = true; });
  std::string got;
  while (got.size() < expected.size()) {
    got += take(pair.read.get(), 10'000);
    loop.restart();
    loop.poll();
  }
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(resumed);
  EXPECT_FALSE(sink.congested());
  EXPECT_EQ(sink.kept(), 0U);
  EXPECT_EQ(::fcntl(pair.write.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Sink, OutlastsASlowReaderOfAPipe) { outlasts_a_slow_reader(make_pipe()); }
TEST(Sink, OutlastsASlowReaderOfASocket) { outlasts_a_slow_reader(make_sockets()); }

TEST(Sink, ReportsAGoneReaderAndReleasesWriters) {
  std::signal(SIGPIPE, SIG_IGN);
  boost::asio::io_context loop;
  Pair pipe = make_pipe();
  Sink sink(loop, pipe.write.get());
  sink.write(std::string(3 << 20, 'x'));
  ASSERT_TRUE(sink.congested());
  bool resumed = false;
  sink.when_free([&] { resumed = true; });
  pipe.read.reset();
  loop.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(resumed);
  EXPECT_EQ(sink.error().code(), base::Code::kPeerLost);
  sink.write("dropped\n");
  EXPECT_FALSE(sink.congested());
}

TEST(Sink, QueuesOtherWritesUntilAMoveEnds) {
  boost::asio::io_context loop;
  const Pair from = make_pipe();
  const Pair to = make_pipe();
  Sink sink(loop, to.write.get());
  ASSERT_TRUE(sink.moves());
  ASSERT_EQ(::write(from.write.get(), "first half, ", 12), 12);
  ASSERT_EQ(sink.move(from.read.get(), 12), 12U);
  EXPECT_TRUE(sink.congested());
  sink.write("another's line\n");
  bool resumed = false;
  sink.when_free([&] { resumed = true; });
  sink.end_move("second half\n");
  EXPECT_TRUE(resumed);
  EXPECT_EQ(take(to.read.get(), 1000), "first half, second half\nanother's line\n");
}

TEST(Sink, ReportsAFullDeviceOnce) {
  boost::asio::io_context loop;
  Sink sink(loop, base::Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "the log");
  int said = 0;
  sink.on_error([&](const base::Status& error) {
    ++said;
    EXPECT_NE(error.message().find("the log"), std::string::npos);
  });
  for (int i = 0; i < 3; ++i) sink.write("line\n");
  EXPECT_EQ(said, 1);
  EXPECT_FALSE(sink.congested());
}

TEST(Sink, RecognisesTheSameFile) {
  const Pair a = make_pipe();
  const Pair b = make_pipe();
  const base::Fd copy(::dup(a.write.get()));
  EXPECT_TRUE(same_file(a.write.get(), copy.get()));
  EXPECT_FALSE(same_file(a.write.get(), b.write.get()));
}

}  // namespace
}  // namespace regroup::process
