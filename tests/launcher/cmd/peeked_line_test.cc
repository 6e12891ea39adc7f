// Lines of the hub, with the job's secret between them, which is to be in no buffer.
#include "launcher/cmd/peeked_line.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "core/fd.h"

namespace regroup::cmd {
namespace {

using Came = PeekedLine::Came;

struct PeekedLineTest : testing::Test {
  PeekedLineTest() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    ours = core::Fd(fds[0]);
    hub = core::Fd(fds[1]);
  }
  void say(const std::string& bytes) const {
    ASSERT_EQ(::send(hub.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  core::Fd ours, hub;
  PeekedLine line;
};

TEST_F(PeekedLineTest, TakesNotAByteFromBehindIt) {
  EXPECT_EQ(line.receive(ours.get()), Came::kNothing);
  say("{\"start\"");
  EXPECT_EQ(line.receive(ours.get()), Came::kNothing);
  say(":1}\nSECRET\nBYTES{}\n");
  EXPECT_EQ(line.receive(ours.get()), Came::kLine);
  EXPECT_EQ(line.take(), "{\"start\":1}\n");
  std::array<char, 12> secret{};
  EXPECT_EQ(::recv(ours.get(), secret.data(), secret.size(), MSG_DONTWAIT), 12);
  EXPECT_EQ(std::string(secret.data(), secret.size()), "SECRET\nBYTES");
  EXPECT_EQ(line.receive(ours.get()), Came::kLine);
  EXPECT_EQ(line.take(), "{}\n");
  hub.reset();
  EXPECT_EQ(line.receive(ours.get()), Came::kEnd);
}

TEST_F(PeekedLineTest, KeepsNoLineWithoutEnd) {
  const std::string piece(16 << 10, 'x');
  auto came = Came::kNothing;
  std::size_t said = 0;
  for (; came == Came::kNothing && said <= 2 * PeekedLine::kLongest; said += piece.size()) {
    say(piece);
    came = line.receive(ours.get());
  }
  EXPECT_EQ(came, Came::kEnd);
  EXPECT_LE(said, PeekedLine::kLongest + piece.size());
}

}  // namespace
}  // namespace regroup::cmd
