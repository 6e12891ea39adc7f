// take_directory() waits for a job that is ending, and refuses at once a directory whose job runs.
#include "launcher/process/run_in_subprocess.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/lock_owner.h"

namespace regroup::process {
namespace {

using namespace std::chrono_literals;

// A process that holds the lock of a directory as long as this is there.
class LockHolder {
 public:
  // `owner` gets the number of that process.
  LockHolder(const std::string& directory, const std::function<std::string(pid_t)>& owner) {
    std::array<int, 2> end{}, taken{};
    EXPECT_EQ(::pipe(end.data()) | ::pipe(taken.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(end[1]);
      const auto lock = base::FileLock::take(directory + "/LOCK", owner(::getpid()));
      char byte = lock.ok() ? '1' : '0';
      (void)::write(taken[1], &byte, 1);
      (void)::read(end[0], &byte, 1);
      ::_exit(0);
    }
    ::close(end[0]);
    ::close(taken[1]);
    end_ = end[1];
    char byte = '0';
    EXPECT_EQ(::read(taken[0], &byte, 1), 1);
    EXPECT_EQ(byte, '1');
    ::close(taken[0]);
  }
  ~LockHolder() { end(); }
  void end() {
    if (pid_ == 0) return;
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int end_ = -1;
};

pid_t dead_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

class TakeDirectory : public testing::Test {
 protected:
  TakeDirectory() {
    std::string name = testing::TempDir() + "subprocess-XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~TakeDirectory() override { std::filesystem::remove_all(directory_); }
  base::Result<std::optional<base::FileLock>> take(base::Duration ending,
                                                   const std::function<void()>& told) {
    return take_directory(directory_, fmt::format("job new (process {} on here)", ::getpid()),
                          /*make=*/true, {10s, ending, [&](const std::string& text) {
                                            said_.push_back(text);
                                            told();
                                          }});
  }
  std::string directory_;
  std::vector<std::string> said_;
};

TEST_F(TakeDirectory, WaitsForAJobWhoseLauncherIsGone) {
  LockHolder old(directory_,
                 [](pid_t) { return fmt::format("job old (process {} on here)", dead_process()); });
  const auto lock = take(60s, [&] { old.end(); });
  ASSERT_TRUE(lock.ok()) << lock.status().message();
  EXPECT_TRUE(lock->has_value());
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("job old (process "), std::string::npos) << said_[0];
  EXPECT_NE(said_[0].find("within 60 s"), std::string::npos) << said_[0];
}

TEST_F(TakeDirectory, NamesAJobThatDoesNotEndAfterItsLauncher) {
  const LockHolder old(directory_, [](pid_t) {
    return fmt::format("job old (process {} on here)", dead_process());
  });
  const auto lock = take(0s, [] {});
  EXPECT_EQ(lock.code(), base::Code::kUnavailable);
  EXPECT_NE(lock.status().message().find("job old (process "), std::string::npos);
  EXPECT_NE(lock.status().message().find("has not ended within 0 s"), std::string::npos)
      << lock.status().message();
}

TEST_F(TakeDirectory, RefusesAtOnceWhereTheOtherLauncherLives) {
  const LockHolder old(directory_,
                       [](pid_t pid) { return fmt::format("job old (process {} on here)", pid); });
  const auto lock = take(60s, [] {});
  EXPECT_EQ(lock.code(), base::Code::kUnavailable);
  EXPECT_NE(lock.status().message().find("job old (process "), std::string::npos);
  EXPECT_TRUE(said_.empty());
}

// Processes of another container with the same host name are invisible.
TEST(LauncherIsGone, KnowsOnlyProcessesOfThisPidNamespace) {
  struct stat pids {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &pids), 0);
  const std::string ours = base::lock_owner("new"),
                    space = fmt::format("PID namespace {})", pids.st_ino);
  ASSERT_NE(ours.find(space), std::string::npos) << ours;
  const std::string mine = fmt::format("(process {} ", ::getpid());
  std::string gone = ours.substr(0, ours.find(mine)) + fmt::format("(process {} ", dead_process()) +
                     ours.substr(ours.find(mine) + mine.size());
  EXPECT_TRUE(launcher_is_gone(gone, ours)) << gone;
  gone.replace(gone.find(space), space.size(), "PID namespace 7)");
  EXPECT_FALSE(launcher_is_gone(gone, ours)) << gone;
}

TEST(LauncherIsGone, KnowsOnlyProcessesOfThisHost) {
  const std::string ours = "job new (process 1 on here)";
  const pid_t dead = dead_process();
  EXPECT_TRUE(launcher_is_gone(fmt::format("job old (process {} on here)", dead), ours));
  EXPECT_FALSE(launcher_is_gone(fmt::format("job old (process {} on there)", dead), ours));
  EXPECT_FALSE(launcher_is_gone(fmt::format("job old (process {} on here)", ::getppid()), ours));
  for (const char* const text :
       {"", "regroup checkpoint prune", "job old", "job old (process  on here)",
        "job old (process 99999999999 on here)", "job old (process 5)", "job old (process 5 on ",
        "job old (process 5 in here)"})
    EXPECT_FALSE(launcher_is_gone(text, ours)) << text;
}

}  // namespace
}  // namespace regroup::process
