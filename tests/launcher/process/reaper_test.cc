// The reaper kills what an agent leaves, however early the agent dies.
#include "launcher/process/reaper.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "launcher/process/descendants.h"
#include "launcher/process/signals.h"

namespace regroup::process {
namespace {

// As the agent: leaves a child behind.
int leave_a_child() {
  if (::fork() == 0) {
    for (;;) ::pause();
  }
  return 0;
}

// As the guardian, whose child the reaper is: the agent is dead before the reaper does anything.
int outlive_the_agent() {
  const auto agent_is_dead = [] {
    siginfo_t info{};
    ::waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
  };
  const auto reaper = Reaper::start({}, leave_a_child, agent_is_dead);
  if (!reaper.ok()) return 2;
  int status = 0;
  if (::waitpid(reaper->pid(), &status, 0) != reaper->pid() || status != 0) return 3;
  if (reaper->agent_status() != 0) return 4;
  if (descendants_of(::getpid()).empty()) return 0;
  kill_descendants(std::chrono::seconds(10));
  return 5;
}

TEST(Reaper, KillsWhatAnAgentLeavesThatDiesBeforeTheReaperRuns) {
  const pid_t guardian = ::fork();
  if (guardian == 0) {
    block_signals();
    become_subreaper();
    ::_exit(outlive_the_agent());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(guardian, &status, 0), guardian);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace regroup::process
