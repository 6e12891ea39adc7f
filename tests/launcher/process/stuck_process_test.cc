// Which processes are exiting or stuck. A process that is stuck in the kernel needs a file system
// whose server is stopped: tests/cli/test_stuck.py.
#include "launcher/process/stuck_process.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <string>
#include <thread>

namespace regroup::process {
namespace {

TEST(StuckProcess, ARunningSleepingOrStoppedProcessIsNotStuck) {
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

TEST(StuckProcess, TheMessageNamesTheKernelFunctionIfKnown) {
  EXPECT_EQ(hangs_in("request_wait_answer"), "hangs in the kernel (request_wait_answer)");
  EXPECT_EQ(hangs_in(""), "hangs in the kernel");
}

TEST(StuckProcess, NamesEveryThreadButTheMainOne) {
  std::promise<void> begun, end;
  std::thread thread([&] {
    ::pthread_setname_np(::pthread_self(), "left over");
    begun.set_value();
    end.get_future().wait();
  });
  begun.get_future().wait();
  const auto named = threads_besides_first(::getpid());
  EXPECT_TRUE(
      std::ranges::any_of(named, [](const std::string& t) { return t.starts_with("left over"); }));
  EXPECT_EQ(threads_besides_first(::getpid(), 0).back(), fmt::format("{} more", named.size()));
  end.set_value();
  thread.join();
}

}  // namespace
}  // namespace regroup::process
