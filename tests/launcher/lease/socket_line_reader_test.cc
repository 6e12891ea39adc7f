// Lines of the controller, with the job's secret between them, which is to be in no buffer.
#include "launcher/lease/socket_line_reader.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "base/fd.h"

namespace regroup::lease {
namespace {

using Outcome = SocketLineReader::Outcome;

struct SocketLineReaderTest : testing::Test {
  SocketLineReaderTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    ours = base::Fd(fds[0]);
    controller = base::Fd(fds[1]);
  }
  void say(const std::string& bytes) const {
    ASSERT_EQ(::send(controller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  base::Fd ours, controller;
  SocketLineReader line;
};

TEST_F(SocketLineReaderTest, ReadsNoByteAfterItsLine) {
  EXPECT_EQ(line.receive(ours.get()), Outcome::kNothing);
  say("{\"start\"");
  EXPECT_EQ(line.receive(ours.get()), Outcome::kNothing);
  say(":1}\nSECRET\nBYTES{}\n");
  EXPECT_EQ(line.receive(ours.get()), Outcome::kLine);
  EXPECT_EQ(line.take(), "{\"start\":1}\n");
  std::array<char, 12> secret{};
  EXPECT_EQ(::recv(ours.get(), secret.data(), secret.size(), MSG_DONTWAIT), 12);
  EXPECT_EQ(std::string(secret.data(), secret.size()), "SECRET\nBYTES");
  EXPECT_EQ(line.receive(ours.get()), Outcome::kLine);
  EXPECT_EQ(line.take(), "{}\n");
  controller.reset();
  EXPECT_EQ(line.receive(ours.get()), Outcome::kEnd);
}

TEST_F(SocketLineReaderTest, DropsALineWithoutEnd) {
  const std::string piece(16 << 10, 'x');
  auto outcome = Outcome::kNothing;
  std::size_t said = 0;
  for (; outcome == Outcome::kNothing && said <= 2 * SocketLineReader::kLongest;
       said += piece.size()) {
    say(piece);
    outcome = line.receive(ours.get());
  }
  EXPECT_EQ(outcome, Outcome::kEnd);
  EXPECT_LE(said, SocketLineReader::kLongest + piece.size());
}

}  // namespace
}  // namespace regroup::lease
