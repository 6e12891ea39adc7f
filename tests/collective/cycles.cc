// The ranks, each in a process of its own, and the test as their agent.
#include "tests/collective/cycles.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>
#include <vector>

#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

using base::Code;
using base::Status;
using proto::Generation;

constexpr int kSize = kCycleRanks;
constexpr int kVictim = 2;

struct Board {
  std::atomic<std::uint64_t> announced;       // newest generation that ranks may open
  std::atomic<std::uint64_t> through[kSize];  // operations of the newest generation
  std::atomic<std::uint64_t> left[kSize];     // last generation that came to its end
  std::atomic<bool> inside;                   // the victim is in an operation
  std::atomic<bool> stop;
};

struct Holdings {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t kib = 0;     // resident and private: pages of files come and go as the system pleases
  std::size_t shared = 0;  // KiB of the address space that others share
};

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

Holdings holdings() {
  ::malloc_trim(0);  // what is held, not what malloc() keeps
  Holdings out{entries("/proc/self/fd"), entries("/proc/self/task")};
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> out.kib;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3 && access[3] == 's')
      out.shared += (end - begin) / 1024;
  }
  return out;
}

// Odd generations are of all, even ones without the victim.
bool is_in(int rank, Generation g) { return rank != kVictim || g % 2 == 1; }

proto::World world_of(Generation g) {
  proto::World world;
  world.generation = g;
  for (int r = 0; r < kSize; ++r) {
    if (is_in(r, g))
      world.members.push_back({.id = static_cast<proto::MemberId>(r),
                               .slot_id = {0, static_cast<proto::SlotIndex>(r)}});
  }
  return world;
}

Shape shape_of(Kind kind) { return {kind, Dtype::kFloat32, Op::kSum, 0, 20'000}; }

// Operations until the generation is over.
Status run_generation(Communicator& comm, Generation g, std::atomic<std::uint64_t>& through) {
  Status status;
  for (std::uint64_t k = 0; status.ok(); ++k) {
    const std::size_t index = (g + k) % std::size(kCollectives);
    status = run_checked(comm, shape_of(kCollectives[index]), index, soon());
    through = k + 1;
  }
  return status;
}

// The same operations in the victim, without pauses, so that it dies inside one.
Status run_to_death(Communicator& comm, Generation g, Board& board) {
  std::vector<Exchange> exchanges;
  for (std::size_t index = 0; index < std::size(kCollectives); ++index)
    exchanges.emplace_back(shape_of(kCollectives[index]), kVictim, kSize, index);
  Status status;
  for (std::uint64_t k = 0; status.ok(); ++k) {
    board.inside = true;
    status = comm.run(exchanges[(g + k) % exchanges.size()].operation(), soon());
    board.inside = false;
    board.through[kVictim] = k + 1;
  }
  return status;
}

void live(TestJob& job, Board& board, int rank, Generation first, const Cycles& cycles) {
  std::optional<Holdings> before;
  std::unique_ptr<Communicator> comm;
  for (Generation g = first; !board.stop; ++g) {
    ASSERT_TRUE(eventually([&] { return board.announced >= g || board.stop; }));
    if (board.stop) break;
    auto next = job.open(world_of(g), rank);
    ASSERT_TRUE(next.ok()) << next.status().to_string();
    comm = std::move(*next);  // the old one ends when the new one is up
    const Holdings now = holdings();
    if (rank != kVictim && g > cycles.settled) {
      if (!before) before = now;
      ASSERT_LE(now.descriptors, before->descriptors + cycles.slack_descriptors)
          << "generation " << g;
      ASSERT_LE(now.threads, before->threads) << "generation " << g;
      ASSERT_LE(now.shared, before->shared) << "generation " << g;
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they keep freed memory for a while
      ASSERT_LE(now.kib, before->kib + cycles.slack_kib) << "generation " << g;
#endif
    }
    const Status status = rank == kVictim ? run_to_death(*comm, g, board)
                                          : run_generation(*comm, g, board.through[rank]);
    ASSERT_EQ(status.code(), Code::kRevoked) << "generation " << g << ": " << status.to_string();
    job.leave(g, rank);
    board.left[rank] = g;
  }
}

class Agent {
 public:
  Agent(TestJob& job, Board& board, const Cycles& cycles)
      : job_(job), board_(board), cycles_(cycles) {}

  void run() {
    Generation inside = 0;
    for (int rank = 0; rank < kSize; ++rank) start(rank, 1);
    for (Generation g = 1; g < 2 * cycles_.count; g += 2) {
      const std::uint64_t moment = 1 + random_() % 12;
      announce(g);
      await(g, moment);
      ASSERT_EQ(::kill(children_[kVictim], SIGKILL), 0);
      ASSERT_EQ(::waitpid(children_[kVictim], nullptr, 0), children_[kVictim]);
      inside += board_.inside ? 1 : 0;
      job_.bury(kVictim);
      end(g);
      announce(g + 1);
      await(g + 1, 3);
      job_.replace(kVictim);
      start(kVictim, g + 2);
      end(g + 1);
      if (::testing::Test::HasFailure()) break;
    }
    EXPECT_GE(inside, cycles_.count / 2);
    board_.stop = true;
    ::kill(children_[kVictim], SIGKILL);
    for (int rank = 0; rank < kSize; ++rank) {
      int status = 0;
      ::waitpid(children_[rank], &status, 0);
      EXPECT_TRUE(rank == kVictim || status == 0) << "rank " << rank << " ended with " << status;
    }
  }

 private:
  void start(int rank, Generation first) {
    children_[rank] = fork_rank(rank, [&](int r) {
      ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // libuct asks for huge pages: 2 MiB for a byte
      const auto mine = job_.in_child();
      live(*mine, board_, r, first, cycles_);
    });
  }
  void announce(Generation g) {
    for (auto& count : board_.through) count = 0;
    board_.announced = g;
  }
  bool all(Generation g, const std::function<bool(int)>& condition) const {
    for (int rank = 0; rank < kSize; ++rank) {
      if (is_in(rank, g) && !condition(rank)) return false;
    }
    return true;
  }
  void await(Generation g, std::uint64_t operations) {
    ASSERT_TRUE(eventually([&] {
      return all(g, [&](int r) { return board_.through[r] >= operations; });
    })) << "generation "
        << g;
  }
  void end(Generation g) {
    job_.revoke(g);
    ASSERT_TRUE(eventually([&] {
      return all(g, [&](int r) { return r == kVictim || board_.left[r] >= g; });
    })) << "generation "
        << g;
  }

  TestJob& job_;
  Board& board_;
  const Cycles cycles_;
  std::mt19937_64 random_{11};
  pid_t children_[kSize] = {};
};

}  // namespace

void run_cycles(TestJob& job, const Cycles& cycles) {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Agent(job, *new (memory) Board(), cycles).run();
  ::munmap(memory, sizeof(Board));
}

}  // namespace regroup::collective::testing
