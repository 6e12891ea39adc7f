// Cross-memory attach: a read returns the exposed memory of the member that exposed it, and fails
// once that member has withdrawn or died.
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

// A process that runs `body` and then waits to be killed; the constructor returns when `body` is
// done.
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
    char done = 0;
    EXPECT_EQ(::read(ends[0], &done, 1), 1);
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

// The memory that a child exposed, in pages shared with it.
class Exposed {
 public:
  Exposed() {
    void* page = ::mmap(nullptr, sizeof(shm::RemoteBuffer), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page, MAP_FAILED);
    memory_ = new (page) shm::RemoteBuffer;
  }
  ~Exposed() { ::munmap(memory_, sizeof(shm::RemoteBuffer)); }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;
  shm::RemoteBuffer& operator*() const { return *memory_; }

 private:
  shm::RemoteBuffer* memory_;
};

TEST(Cma, ReadsAStoppedProcessButNotADeadOne) {
  const Exposed exposed;
  Child child([&] {
    static shm::LivenessCanary canary;
    void* memory =
        ::mmap(nullptr, 2 * kMany, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(memory, 0x5a, kMany);
    ::munmap(static_cast<std::byte*>(memory) + kMany, kMany);
    *exposed = canary.expose(Input(static_cast<std::byte*>(memory), kMany));
  });
  EXPECT_EQ((*exposed).pid, child.pid());
  Bytes got(kMany - 5);
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  ASSERT_TRUE(shm::cma_read(*exposed, 5, got));
  EXPECT_EQ(std::ranges::count(got, std::byte{0x5a}), static_cast<std::ptrdiff_t>(got.size()));
  EXPECT_FALSE(shm::cma_read(*exposed, 6, got)) << "past the end of the mapping";
  child.kill();
  EXPECT_FALSE(shm::cma_read(*exposed, 5, got));
}

// As if the pid had been reused, by a process with the same memory at the same addresses.
TEST(Cma, DoesNotReadAForkedCopyOfAMember) {
  shm::LivenessCanary canary;
  const Bytes data(1000, std::byte{7});
  shm::RemoteBuffer memory = canary.expose(data);
  Bytes got(data.size());
  ASSERT_TRUE(shm::cma_read(memory, 0, got));
  EXPECT_EQ(got, data);
  const Child copy([] {});
  memory.pid = copy.pid();
  EXPECT_FALSE(shm::cma_read(memory, 0, got));
}

TEST(Cma, FailsAfterTheCanaryWasWithdrawn) {
  const Bytes data(1000, std::byte{7});
  Bytes got(data.size());
  shm::RemoteBuffer memory;
  {
    shm::LivenessCanary canary;
    memory = canary.expose(data);
    ASSERT_TRUE(shm::cma_read(memory, 0, got));
    canary.withdraw();
    EXPECT_FALSE(shm::cma_read(memory, 0, got));
    EXPECT_EQ(canary.expose(data).address, 0U);
    EXPECT_FALSE(shm::cma_read(canary.expose(data), 0, got));
  }
  EXPECT_FALSE(shm::cma_read(memory, 0, got));
  shm::LivenessCanary next;
  EXPECT_NE(next.expose(data).canary, memory.canary);
  EXPECT_FALSE(shm::cma_read(memory, 0, got));
}

}  // namespace
}  // namespace regroup::collective::foreign
