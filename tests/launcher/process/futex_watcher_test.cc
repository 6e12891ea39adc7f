// Deaths of real processes that hold real robust mutexes in shared memory.
#include "launcher/process/futex_watcher.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <semaphore>
#include <set>
#include <string>
#include <thread>

#include "base/fd.h"

namespace regroup::process {
namespace {

constexpr std::chrono::seconds kDeadline{10};

struct Shared {
  std::array<pthread_mutex_t, 128> locks;
};

class FutexWatcherTest : public testing::Test {
 protected:
  FutexWatcherTest() {
    shared_ = static_cast<Shared*>(
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (auto& lock : shared_->locks) ::pthread_mutex_init(&lock, &attributes);
  }
  ~FutexWatcherTest() override {
    for (const pid_t child : children_) kill(child);
    ::munmap(shared_, sizeof(Shared));
  }

  // A process that holds lock `i`; returns when it does.
  pid_t hold(std::size_t i) {
    std::array<int, 2> fds{};
    EXPECT_EQ(::pipe(fds.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::pthread_mutex_lock(&shared_->locks[i]);
      static_cast<void>(!::write(fds[1], "x", 1));
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(fds[0], &byte, 1), 1);
    ::close(fds[0]);
    ::close(fds[1]);
    children_.push_back(child);
    return child;
  }
  void kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  void watch(FutexWatcher& watcher, std::size_t i) {
    const auto status =
        watcher.watch(static_cast<proto::SlotIndex>(i), futex_word(shared_->locks[i]));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void run_until(std::size_t deaths) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    loop_.restart();
    while (dead_.size() < deaths && std::chrono::steady_clock::now() < deadline) {
      loop_.run_one_for(std::chrono::milliseconds(100));
    }
  }

  boost::asio::io_context loop_;
  Shared* shared_ = nullptr;
  std::vector<pid_t> children_;
  std::vector<proto::SlotIndex> dead_;
};

TEST_F(FutexWatcherTest, ReportsADeathOnce) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  const pid_t child = hold(3);
  watch(watcher, 3);
  loop_.poll();
  EXPECT_TRUE(dead_.empty());
  kill(child);
  run_until(1);
  EXPECT_EQ(dead_, std::vector<proto::SlotIndex>{3});
  loop_.restart();
  loop_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dead_.size(), 1U);
}

TEST_F(FutexWatcherTest, ReportsADeathBeforeTheWatch) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  kill(hold(0));
  watch(watcher, 0);
  run_until(1);
  EXPECT_EQ(dead_, std::vector<proto::SlotIndex>{0});
}

TEST_F(FutexWatcherTest, ReportsEveryDeathAlsoOfLaterWatches) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < 6; ++i) {
    children.push_back(hold(i));
    watch(watcher, i);
  }
  std::vector<proto::SlotIndex> expected;
  for (const std::size_t i : {4U, 1U, 5U}) {
    kill(children[i]);
    expected.push_back(static_cast<proto::SlotIndex>(i));
    run_until(expected.size());
    EXPECT_EQ(dead_, expected);
  }
  const pid_t late = hold(7);
  watch(watcher, 7);
  kill(late);
  run_until(4);
  expected.push_back(7);
  EXPECT_EQ(dead_, expected);
}

TEST_F(FutexWatcherTest, ReportsNoDeathOfAnUnwatchedProcess) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  const pid_t gone = hold(0);
  const pid_t kept = hold(1);
  watch(watcher, 0);
  watch(watcher, 1);
  watcher.unwatch(0);
  kill(gone);
  kill(kept);
  run_until(1);
  EXPECT_EQ(dead_, std::vector<proto::SlotIndex>{1});
}

std::set<std::string> eventfds() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (target == "anon_inode:[eventfd]") found.insert(entry.path().filename());
  }
  return found;
}

// The line is given to another member between the thread's finding and the loop's turn.
TEST_F(FutexWatcherTest, ReportsNoPendingDeathAfterUnwatch) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  const pid_t child = hold(0);
  const auto before = eventfds();
  watch(watcher, 0);
  int found = -1;
  for (const std::string& fd : eventfds()) {
    if (!before.contains(fd)) found = std::stoi(fd);
  }
  ASSERT_GE(found, 0);
  kill(child);
  pollfd event{found, POLLIN, 0};
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline).count();
  ASSERT_EQ(::poll(&event, 1, static_cast<int>(timeout)), 1);
  watcher.unwatch(0);
  const pid_t other = hold(1);
  watch(watcher, 1);
  kill(other);
  run_until(1);
  EXPECT_EQ(dead_, std::vector<proto::SlotIndex>{1});
}

// Loop and thread at their quickest, for ThreadSanitizer too: every second death is told, the
// others are forgotten at a random moment of their finding. Threads die as processes do, and
// sooner.
TEST_F(FutexWatcherTest, ReportsDeathsOfWatchedProcessesOnly) {
  FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
  std::vector<proto::SlotIndex> expected;
  for (std::size_t slot = 0; slot < shared_->locks.size(); ++slot) {
    std::binary_semaphore locked(0), over(0);
    std::thread owner([&] {
      ::pthread_mutex_lock(&shared_->locks[slot]);
      locked.release();
      over.acquire();
    });
    locked.acquire();
    watch(watcher, slot);
    over.release();
    if (slot % 2 == 0) {
      expected.push_back(static_cast<proto::SlotIndex>(slot));
      run_until(expected.size());
    } else {
      watcher.unwatch(static_cast<proto::SlotIndex>(slot));
    }
    owner.join();
  }
  loop_.restart();
  loop_.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(dead_, expected);
}

// One word more than the kernel takes stands for a system that refuses the call.
TEST_F(FutexWatcherTest, ReportsARefusalOfTheKernelOnce) {
  std::vector<base::Status> failures;
  FutexWatcher watcher(
      loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); },
      [this, &failures](const base::Status& failure) {
        failures.push_back(failure);
        loop_.stop();
      });
  for (int slot = 0; slot < FUTEX_WAITV_MAX; ++slot) {
    const auto status =
        watcher.watch(static_cast<proto::SlotIndex>(slot), futex_word(shared_->locks[0]));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  loop_.run_for(kDeadline);
  loop_.restart();
  loop_.run_for(std::chrono::milliseconds(20));
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_NE(failures[0].message().find("futex_waitv"), std::string::npos);
}

TEST_F(FutexWatcherTest, EndsItsThreadWhileItWaits) {
  const pid_t child = hold(0);
  {
    FutexWatcher watcher(loop_, [this](proto::SlotIndex slot) { dead_.push_back(slot); });
    watch(watcher, 0);
  }
  EXPECT_TRUE(dead_.empty());
  kill(child);
}

}  // namespace
}  // namespace regroup::process
