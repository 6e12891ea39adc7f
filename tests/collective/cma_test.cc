// Reads of other processes: what is read is what was announced, by the member that announced it, which still
// stands by it.
#include "collective/shm/cma.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <vector>

namespace regroup::collective::foreign {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMany = 3 << 20;

// A process that runs `body` and then waits to be killed; this one goes on when `body` is done.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      static_cast<void>(::write(ends[1], "x", 1));
      for (;;) ::pause();
    }
    char told = 0;
    EXPECT_EQ(::read(ends[0], &told, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() {
    if (pid_ <= 0) return;
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// What a child announced, in memory that both have.
class Announced {
 public:
  Announced() {
    void* page =
        ::mmap(nullptr, sizeof(RemoteBuffer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page, MAP_FAILED);
    memory_ = new (page) RemoteBuffer;
  }
  ~Announced() { ::munmap(memory_, sizeof(RemoteBuffer)); }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  RemoteBuffer& operator*() const { return *memory_; }

 private:
  RemoteBuffer* memory_;
};

TEST(Cma, AProcessThatIsStoppedIsReadAndOneThatIsDeadIsNot) {
  const Announced announced;
  Child child([&] {
    static LivenessCanary canary;
    void* memory = ::mmap(nullptr, 2 * kMany, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 0x5a, kMany);
    ::munmap(static_cast<std::byte*>(memory) + kMany, kMany);
    *announced = canary.expose(Input(static_cast<std::byte*>(memory), kMany));
  });
  EXPECT_EQ((*announced).pid, child.pid());
  Bytes got(kMany - 5);
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  ASSERT_TRUE(cma_read(*announced, 5, got));
  EXPECT_EQ(std::ranges::count(got, std::byte{0x5a}), static_cast<std::ptrdiff_t>(got.size()));
  EXPECT_FALSE(cma_read(*announced, 6, got)) << "behind the end of the mapping";
  child.kill();
  EXPECT_FALSE(cma_read(*announced, 5, got));
}

// As if the pid were another process's by now: one that has the same memory at the same addresses.
TEST(Cma, AForkedCopyOfAMemberIsNotTheMember) {
  LivenessCanary canary;
  const Bytes data(1000, std::byte{7});
  RemoteBuffer memory = canary.expose(data);
  Bytes got(data.size());
  ASSERT_TRUE(cma_read(memory, 0, got));
  EXPECT_EQ(got, data);
  const Child copy([] {});
  memory.pid = copy.pid();
  EXPECT_FALSE(cma_read(memory, 0, got));
}

TEST(Cma, WhoWithdrewIsNotReadNorWhoComesAfter) {
  const Bytes data(1000, std::byte{7});
  Bytes got(data.size());
  RemoteBuffer memory;
  {
    LivenessCanary canary;
    memory = canary.expose(data);
    ASSERT_TRUE(cma_read(memory, 0, got));
    canary.withdraw();
    EXPECT_FALSE(cma_read(memory, 0, got));
    EXPECT_EQ(canary.expose(data).address, 0U);
    EXPECT_FALSE(cma_read(canary.expose(data), 0, got));
  }
  EXPECT_FALSE(cma_read(memory, 0, got));
  LivenessCanary next;
  EXPECT_NE(next.expose(data).canary, memory.canary);
  EXPECT_FALSE(cma_read(memory, 0, got));
}

}  // namespace
}  // namespace regroup::collective::foreign
