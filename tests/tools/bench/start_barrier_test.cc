// The common start, where ranks have a core each and where they share one; and which cores rivals
// have.
#include "tools/bench/start_barrier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tools/bench/process.h"

namespace regroup::bench {
namespace {

std::vector<int> own_cores() {
  cpu_set_t mask;
  std::vector<int> cores;
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

void bind_to(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  EXPECT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
}

// Memory that two ranks share.
struct Memory {
  char lines[2 * START_SLOT];
  std::atomic<std::uint64_t> begin[2][2];  // by rank, then by start
  std::atomic<bool> alone;  // rank 0 was through with its second start before rank 1 came
};

class StartBarrier : public ::testing::Test {
 protected:
  StartBarrier() {
    void* memory =
        ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = new (memory) Memory();
  }
  ~StartBarrier() override { ::munmap(memory_, sizeof(Memory)); }

  // Two starts of two processes, which are bound to these cores; rank 1 comes to the second only
  // when rank 0 is through it, or half a second later.
  void start_twice(const std::vector<int>& cores) {
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(::fork());
      if (ranks.back() != 0) continue;
      bind_to(cores[static_cast<std::size_t>(rank)]);
      auto& begin = memory_->begin[rank];
      begin[0] = start_together(memory_->lines, rank, 2, 0);
      for (int wait = 0; rank == 1 && wait < 500 && memory_->begin[0][1] == 0; ++wait)
        ::usleep(1000);
      if (rank == 1) memory_->alone = memory_->begin[0][1] != 0;
      begin[1] = start_together(memory_->lines, rank, 2, begin[0]);
      ::_exit(0);
    }
    for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  }

  Memory* memory_;
};

TEST_F(StartBarrier, RanksWithACoreEachStartTogether) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  start_twice({cores[0], cores[1]});
  EXPECT_FALSE(memory_->alone);
  for (const int start : {0, 1}) {
    EXPECT_NE(memory_->begin[0][start], 0U);
    EXPECT_EQ(memory_->begin[0][start], memory_->begin[1][start]);
  }
}

TEST_F(StartBarrier, RanksThatShareACoreStartWhenTheyAreThere) {
  const std::vector<int> cores = own_cores();
  start_twice({cores[0], cores[0]});
  EXPECT_TRUE(memory_->alone);
  EXPECT_GT(memory_->begin[1][1].load(), memory_->begin[0][1].load());
}

TEST(Rivals, HaveAllCoresWhateverThisThreadIsBoundTo) {
  const auto all = static_cast<int>(own_cores().size());
  std::thread([&] {
    bind_to(own_cores().back());
    EXPECT_GE(cores_of_programs(), all);
    EXPECT_EQ(own_cores().size(), 1U);
  }).join();
}

}  // namespace
}  // namespace regroup::bench
