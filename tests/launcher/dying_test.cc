// Which processes are on their way out. One that hangs in the kernel needs a file system whose server is
// gone: tests/cli/test_stuck.py.
#include "launcher/supervise/dying.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace regroup::launcher {
namespace {

TEST(Dying, WhoRunsSleepsOrIsStoppedIsNot) {
  EXPECT_FALSE(is_exiting(::getpid()));
  EXPECT_EQ(stuck_in(::getpid()), std::nullopt);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_EQ(stuck_in(child), std::nullopt);
  ::kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_FALSE(is_exiting(child));
  EXPECT_EQ(stuck_in(child), std::nullopt);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(is_exiting(child));
  EXPECT_EQ(stuck_in(child), std::nullopt);  // it has ended
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(is_exiting(child));
  EXPECT_EQ(stuck_in(child), std::nullopt);
}

TEST(Dying, IsToldWithTheFunctionOfTheKernelWhereThatIsKnown) {
  EXPECT_EQ(hangs_in("request_wait_answer"), "hangs in the kernel (request_wait_answer)");
  EXPECT_EQ(hangs_in(""), "hangs in the kernel");
}

}  // namespace
}  // namespace regroup::launcher
