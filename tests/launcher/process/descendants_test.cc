// Nothing below a subreaper survives kill_descendants().
#include "launcher/process/descendants.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "launcher/process/signals.h"

namespace regroup::process {
namespace {

// Runs `body` in a process of its own, which may become a subreaper and block signals.
int in_child(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    block_signals();
    become_subreaper();
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A chain of `depth` processes, each in a session of its own, all holding `fd`.
void fork_chain(int depth, int fd) {
  const pid_t child = ::fork();
  if (child != 0) return;
  ::setsid();
  if (depth > 1) fork_chain(depth - 1, fd);
  const char byte = 'r';
  static_cast<void>(!::write(fd, &byte, 1));
  if (depth == 2) ::_exit(0);  // its child is an orphan from now on
  for (;;) ::pause();
}

int kill_chain() {
  constexpr int kDepth = 4;
  std::array<int, 2> fds{};
  if (::pipe(fds.data()) != 0) return 2;
  fork_chain(kDepth, fds[1]);
  ::close(fds[1]);
  char byte = 0;
  for (int i = 0; i < kDepth; ++i) {
    if (::read(fds[0], &byte, 1) != 1) return 3;
  }
  if (!kill_descendants(std::chrono::seconds(10))) return 4;
  if (::read(fds[0], &byte, 1) != 0) return 5;  // somebody still holds the pipe
  return descendants_of(::getpid()).empty() ? 0 : 6;
}

TEST(Descendants, AreAllKilledAndReaped) { EXPECT_EQ(in_child(kill_chain), 0); }

int kill_none() { return kill_descendants(std::chrono::seconds(10)) ? 0 : 1; }

TEST(Descendants, EndsAtOnceWithoutDescendants) { EXPECT_EQ(in_child(kill_none), 0); }

// The child holds the only write end of the pipe.
int kill_within_no_time() {
  std::array<int, 2> fds{};
  if (::pipe(fds.data()) != 0) return 2;
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ::close(fds[1]);
  static_cast<void>(kill_descendants(base::Duration::zero()));
  pollfd ended{fds[0], POLLIN, 0};
  const bool killed = ::poll(&ended, 1, 10'000) == 1;
  ::kill(child, SIGKILL);
  return killed ? 0 : 3;
}

TEST(Descendants, AreKilledAfterTheLimit) { EXPECT_EQ(in_child(kill_within_no_time), 0); }

TEST(Descendants, AreFoundAtEveryDepth) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe(fds.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      for (;;) ::pause();
    }
    static_cast<void>(!::write(fds[1], &grandchild, sizeof grandchild));
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(fds[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  const std::vector<pid_t> found = descendants_of(::getpid());
  EXPECT_EQ(std::count(found.begin(), found.end(), child), 1);
  EXPECT_EQ(std::count(found.begin(), found.end(), grandchild), 1);
  ::kill(grandchild, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace regroup::process
