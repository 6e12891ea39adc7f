// A member's process starts clean, whatever the launcher's own state is.
#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "launcher/process/priority.h"
#include "launcher/process/signals.h"

namespace regroup::process {
namespace {

struct Ran {
  int status = 0;
  pid_t pid = 0;
  std::string output;
};

Ran run(const std::string& script, Priority priority = current_priority(), int inherited = -1,
        const std::vector<int>& cores = {}, const std::vector<int>& kept = {}) {
  std::array<int, 2> fds{};
  EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const base::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto pid = spawn({"/bin/sh",
                    {"sh", "-c", script},
                    {"A=b"},
                    "/",
                    null.get(),
                    fds[1],
                    fds[1],
                    priority,
                    inherited,
                    cores,
                    {},
                    {},
                    0,
                    0,
                    kept});
  ::close(fds[1]);
  EXPECT_TRUE(pid.ok()) << pid.status().to_string();
  Ran ran;
  ran.pid = *pid;
  std::array<char, 4096> bytes;
  for (ssize_t count; (count = ::read(fds[0], bytes.data(), bytes.size())) > 0;) {
    ran.output.append(bytes.data(), static_cast<std::size_t>(count));
  }
  ::close(fds[0]);
  EXPECT_EQ(::waitpid(*pid, &ran.status, 0), *pid);
  return ran;
}

TEST(Spawn, PassesEnvironmentFolderAndDescriptors) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // without close-on-exec
  const Ran ran = run("echo $A; pwd; ls /proc/self/fd | wc -l; exit 7");
  ::close(leaked);
  EXPECT_EQ(ran.output, "b\n/\n4\n");  // 0, 1, 2 and that of ls
  EXPECT_EQ(WEXITSTATUS(ran.status), 7);
}

TEST(Spawn, PassesOneDescriptorOnWhateverItsNumber) {
  for (int number = 3; number < 6; ++number) {
    const int file = ::open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    const bool moved = file != number;
    if (moved) {
      EXPECT_EQ(::dup3(file, number, O_CLOEXEC), number);
    }
    EXPECT_EQ(run("readlink /proc/self/fd/3; ls /proc/self/fd | wc -l", current_priority(), number)
                  .output,
              "/etc/passwd\n5\n");
    ::close(number);
    if (moved) ::close(file);
  }
}

TEST(Spawn, KeepsDescriptorsUnderTheirNumbers) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // without close-on-exec
  std::vector<int> kept;
  for (const int number : {71, 72, 90}) {
    const base::Fd file(::open("/etc/passwd", O_RDONLY | O_CLOEXEC));
    kept.push_back(::dup3(file.get(), number, O_CLOEXEC));
  }
  const Ran ran = run("cd /proc/self/fd && readlink 71 72 90; ls /proc/self/fd | wc -l",
                      current_priority(), -1, {}, kept);
  for (const int number : kept) ::close(number);
  ::close(leaked);
  EXPECT_EQ(ran.output, "/etc/passwd\n/etc/passwd\n/etc/passwd\n7\n");
}

TEST(Spawn, BindsToCores) {
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &mine)) --last;
  const Ran ran = run("grep Cpus_allowed_list /proc/self/status", current_priority(), -1, {last});
  EXPECT_EQ(ran.output, "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
}

TEST(Spawn, MakesAProcessGroup) {
  const Ran ran = run("ps -o pgid= -p $$");
  EXPECT_EQ(std::stoi(ran.output), ran.pid);
}

TEST(Spawn, ResetsSignals) {
  sigset_t before;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  block_signals();
  std::signal(SIGUSR1, SIG_IGN);
  const Ran ran = run("cat /proc/self/status");
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGUSR1, SIG_DFL);
  for (const char* line : {"SigBlk:\t0000000000000000\n", "SigIgn:\t0000000000000000\n",
                           "SigCgt:\t0000000000000000\n"}) {
    EXPECT_NE(ran.output.find(line), std::string::npos) << line << ran.output;
  }
}

TEST(Spawn, DoesNotInheritTheLaunchersPriority) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Priority own = current_priority();
    prefer_promptness();
    const Ran ran = run("ps -o ni= -p $$", own);
    ::_exit(std::stoi(ran.output) == own.nice ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// What nice(1) and chrt(1) have given to the launcher, which may prefer another one itself.
TEST(Spawn, GivesThePolicyOfTheLaunchersCaller) {
  for (const auto& [policy, name] :
       {std::pair(SCHED_OTHER, "SCHED_OTHER"), std::pair(SCHED_BATCH, "SCHED_BATCH"),
        std::pair(SCHED_IDLE, "SCHED_IDLE")}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const sched_param none{};
      if (::setpriority(PRIO_PROCESS, 0, 7) != 0 || ::sched_setscheduler(0, policy, &none) != 0)
        ::_exit(2);
      const Priority own = current_priority();
      prefer_promptness();
      if (::sched_getscheduler(0) != policy) ::_exit(3);
      const Ran ran =
          run("chrt -p $$ | sed -n 's/.*policy: //p'; cut -d' ' -f19 /proc/$$/stat", own);
      ::_exit(ran.output == std::string(name) + "\n7\n" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << name;
  }
}

TEST(Spawn, NamesTheCallThatFailed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer makes fork of vfork";
#endif
  const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnSpec spec{"/nonexistent/tool", {"tool"}, {}, "", null.get(), null.get(), null.get(), {}};
  EXPECT_EQ(spawn(spec).status().message(), "execve(/nonexistent/tool): No such file or directory");
  spec.path = "/bin/true";
  spec.wdir = "/nonexistent";
  EXPECT_EQ(spawn(spec).status().message(), "chdir(/nonexistent): No such file or directory");
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// As shells and hydra do; a program of another machine is not read as one.
TEST(Spawn, RunsAScriptWithoutInterpreterByTheShell) {
  const auto file = [](std::string_view text) {
    std::string path = "/tmp/spawn_test.XXXXXX";
    const base::Fd out(::mkstemp(path.data()));
    EXPECT_EQ(::write(out.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::fchmod(out.get(), 0700);
    return path;
  };
  const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::string script = file("exit $(($1 + 1))\n");
  auto pid = spawn({script, {"script", "6"}, {}, "", null.get(), null.get(), null.get(), {}});
  ASSERT_TRUE(pid.ok()) << pid.status().to_string();
  int status = 0;
  EXPECT_EQ(::waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  ::unlink(script.c_str());
  const std::string other =
      file(std::string_view("\x7f"
                            "OLF\0\0",
                            6));
  auto refused = spawn({other, {"other"}, {}, "", null.get(), null.get(), null.get(), {}});
  EXPECT_EQ(refused.status().message(), "execve(" + other + "): Exec format error");
  ::unlink(other.c_str());
}

TEST(Spawn, DiesWithItsParent) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe(fds.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::close(fds[0]);
    const base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    auto pid = spawn({"/bin/sleep", {"sleep", "60"}, {}, "", null.get(), fds[1], null.get(), {}});
    ::raise(SIGKILL);
  }
  ::close(fds[1]);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  char byte = 0;
  EXPECT_EQ(::read(fds[0], &byte, 1), 0);  // the end of the pipe that the member alone held
  ::close(fds[0]);
}

}  // namespace
}  // namespace regroup::process
