// A line that is redrawn never mixes with what other processes write to the same terminal. A
// terminal is a pseudo-terminal here, whose text is read at the other end.
#include "launcher/process/terminal_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "base/fd.h"
#include "launcher/process/sink.h"

namespace regroup::process {
namespace {

const std::string kCleared = "\r\x1b[K";

class TerminalLineTest : public testing::Test {
 protected:
  void SetUp() override {
    int master = -1, slave = -1;
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    master_.reset(master), slave_.reset(slave);
    ::fcntl(master, F_SETFL, O_NONBLOCK);
    termios modes{};
    ::tcgetattr(slave, &modes);
    ::cfmakeraw(&modes);  // bytes arrive as they were written
    ::tcsetattr(slave, TCSANOW, &modes);
    line_ = TerminalLine::make();
    ASSERT_NE(line_, nullptr);
  }
  // The terminal got `text` since the last call, and nothing before it. Bytes arrive a moment after
  // they were written.
  void expect_seen(const std::string& text) {
    std::string all;
    std::array<char, 4096> bytes{};
    pollfd poll{master_.get(), POLLIN, 0};
    while (all.size() < text.size() && ::poll(&poll, 1, 10'000) == 1) {
      const ssize_t count = ::read(master_.get(), bytes.data(), bytes.size());
      if (count > 0) all.append(bytes.data(), static_cast<std::size_t>(count));
    }
    EXPECT_EQ(all, text);
  }
  // Of a terminal that got much: what has arrived.
  std::string seen() {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(master_.get(), bytes.data(), bytes.size());
    return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : "";
  }

  boost::asio::io_context loop_;
  base::Fd master_, slave_;
  std::shared_ptr<TerminalLine> line_;
};

TEST_F(TerminalLineTest, IsErasedBeforeOtherLines) {
  Sink ours(loop_, slave_.get()), others(loop_, slave_.get());
  ours.share(line_.get()), others.share(line_.get());
  EXPECT_TRUE(ours.draws());
  ours.draw("10 %");
  expect_seen(kCleared + "10 %");
  others.write("hello\n");
  expect_seen(kCleared + "hello\n");
  others.write("again\n");
  expect_seen("again\n");  // nothing was drawn meanwhile
  ours.draw("20 %");
  ours.draw("30 %");
  expect_seen(kCleared + "20 %" + kCleared + "30 %");
  others.draw("");
  others.draw("");  // nothing is drawn any more
  others.write("end\n");
  expect_seen(kCleared + "end\n");
}

TEST_F(TerminalLineTest, IsNotDrawnWhileAnotherLineIsIncomplete) {
  Sink sink(loop_, slave_.get());
  sink.share(line_.get());
  sink.write("name: ");
  sink.draw("10 %");
  sink.write("Ada\n");
  sink.draw("20 %");
  expect_seen("name: Ada\n" + kCleared + "20 %");
}

TEST_F(TerminalLineTest, AStalledTerminalIsNotDrawnOn) {
  Sink sink(loop_, slave_.get());
  sink.share(line_.get());
  sink.write(std::string(1 << 20, 'x'));
  ASSERT_TRUE(sink.congested());
  sink.draw("10 %");
  std::string all;
  while (sink.congested()) {
    all += seen();
    loop_.restart();
    loop_.poll();
  }
  all += seen();
  EXPECT_EQ(all.find('%'), std::string::npos);
}

TEST_F(TerminalLineTest, IsSharedByProcessesAndOutlivesOneThatIsKilledInItsTurn) {
  Sink sink(loop_, slave_.get());
  sink.share(line_.get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sink.draw("10 %");
    const TerminalLine::Turn turn(*line_);
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  sink.write("hello\n");
  expect_seen(kCleared + "10 %" + kCleared + "hello\n");
}

TEST_F(TerminalLineTest, WaitsForAStoppedProcessForAMomentOnly) {
  Sink sink(loop_, slave_.get());
  sink.share(line_.get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const TerminalLine::Turn turn(*line_);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  sink.write("hello\n");
  expect_seen("hello\n");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(TerminalLineTest, OnlyTerminalsHaveOne) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const base::Fd read(fds[0]), write(fds[1]);
  Sink sink(loop_, write.get());
  sink.share(line_.get());
  EXPECT_FALSE(sink.draws());
  sink.draw("10 %");
  sink.write("hello\n");
  std::array<char, 64> bytes{};
  EXPECT_EQ(::read(read.get(), bytes.data(), bytes.size()), 6);
}

TEST_F(TerminalLineTest, KnowsTheWidth) {
  EXPECT_EQ(TerminalLine::columns(slave_.get()), 80U);  // it says 0
  const winsize size{33, 77, 0, 0};
  ::ioctl(slave_.get(), TIOCSWINSZ, &size);
  EXPECT_EQ(TerminalLine::columns(slave_.get()), 77U);
  EXPECT_EQ(TerminalLine::columns(-1), 80U);
  EXPECT_TRUE(TerminalLine::in_foreground(slave_.get()));  // of no session
}

}  // namespace
}  // namespace regroup::process
