// How a member waits: it spins only where every rank can have a core of its own, and uses no
// processor time while it is blocked. Threads bind to cores like processes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <ctime>
#include <random>
#include <semaphore>
#include <span>
#include <thread>

#include "base/clock.h"
#include "collective/shm/communicator.h"
#include "collective/spin_limit.h"
#include "shmem/generation_fence.h"
#include "tests/collective/shm/comm.h"

namespace regroup::collective::testing::shm_waiting {
namespace {

using namespace std::chrono_literals;

constexpr int kFree = -1;

// With ranks bound to the first or the second of this process's cores.
struct Binding {
  const char* name;
  std::vector<int> to;  // by rank: which core, or kFree
  bool spins;
};

TEST(ShmSpin, RanksSpinOnlyIfEachHasACore) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const auto many = static_cast<int>(cores.size());
  const Binding rows[] = {
      {"each to its own", {0, 1}, true},
      {"both to one", {0, 0}, false},
      {"one to one, the other free", {0, kFree}, true},
      {"both free", {kFree, kFree}, true},
      {"three on two", {0, 1, 1}, false},
      {"two on one, the others free", {0, 0, kFree}, false},
      {"more than cores, free", std::vector<int>(static_cast<std::size_t>(many) + 1, kFree), false},
  };
  for (const Binding& row : rows) {
    SCOPED_TRACE(row.name);
    const auto size = static_cast<int>(row.to.size());
    if (row.to.size() > proto::kMaxSlots) continue;  // no node has so many members
    const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(size)});
    run_all(Ranks::kThreads, size, [&](int rank) {
      const int to = row.to[static_cast<std::size_t>(rank)];
      if (to != kFree) bind_to(cores[static_cast<std::size_t>(to)]);
      const auto comm = open_comm(arena, rank);
      ASSERT_TRUE(comm->barrier(soon()).ok());
      EXPECT_EQ(static_cast<shm::ShmCommunicator&>(*comm).engine().spins(), row.spins)
          << "rank " << rank;
    });
  }
}

// All members count the same cores, at any time: those of each member at its first operation in a
// generation.
TEST(ShmSpin, AMemberThatMovesCountsWhereItWasUntilTheNextGeneration) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  const shmem::Arena arena = make_arena({.slots = 2});
  std::barrier both_counted(2);
  run_all(Ranks::kThreads, 2, [&](int rank) {
    bind_to(cores[static_cast<std::size_t>(rank)]);
    auto steps = open_comm(arena, rank);
    ASSERT_TRUE(steps->barrier(soon()).ok());
    bind_to(cores[0]);
    CommunicatorOptions options;
    options.channel = shmem::ChannelKind::kSections;
    const proto::SlotId slot_id{0, static_cast<proto::SlotIndex>(rank)};
    auto section = shm::make_shm(arena, make_world(1, 2), slot_id, options);
    ASSERT_TRUE(section.ok() && (*section)->barrier(soon()).ok());
    EXPECT_TRUE(static_cast<shm::ShmCommunicator&>(**section).engine().spins());
    both_counted.arrive_and_wait();  // a member in the next generation says that this one is over
    steps.reset();
    shmem::hold_fence<shmem::RealPolicy>(arena.member_slot(slot_id.slot).left_generation, 2);
    auto next = shm::make_shm(arena, make_world(2, 2), slot_id, {});
    ASSERT_TRUE(next.ok() && (*next)->barrier(soon()).ok());
    EXPECT_TRUE(static_cast<shm::ShmCommunicator&>(**next).engine().core_use().shares_cores());
  });
}

std::uint64_t sleeps_of(const Communicator& comm) {
  return static_cast<const shm::ShmCommunicator&>(comm).engine().sleeps();
}

// The time that the spin limits of this thread's member read stands still, so the member never
// sleeps. With `first_sleep` it passes at once until the member has slept once more than `before`.
struct FirstSleep {
  const Communicator& comm;
  std::uint64_t before = 0;
  std::atomic<bool>& over;
};
thread_local base::TimePoint spin_time;
thread_local const FirstSleep* first_sleep = nullptr;
base::TimePoint read_spin_clock() {
  if (first_sleep == nullptr) return spin_time;
  if (sleeps_of(first_sleep->comm) == first_sleep->before) {
    spin_time += 1s;
  } else {
    first_sleep->over = true;
  }
  return spin_time;
}

shm::ShmOptions with_spin_clock() {
  shm::ShmOptions options;
  options.spin_clock = read_spin_clock;
  return options;
}

// Rank 1 comes after rank 0 has slept at the first synchronisation point; at each of the next ones
// rank 0 spins first.
TEST(ShmSpin, ASleepIsForOneSyncPointNotForAnOperation) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  constexpr std::size_t kChunks = 256;
  const shmem::Arena arena = make_arena({.slots = 2});
  std::atomic<bool> has_slept{false};
  run_all(Ranks::kThreads, 2, [&](int rank) {
    SCOPED_TRACE(rank);
    const auto comm = open_comm(arena, rank, with_spin_clock());
    const Bytes in(kChunks << 17);
    Bytes out(in.size());
    ASSERT_TRUE(comm->barrier(soon()).ok());
    const FirstSleep first{*comm, sleeps_of(*comm), has_slept};
    if (rank == 0) first_sleep = &first;
    if (rank == 1) {
      ASSERT_TRUE(eventually([&] { return has_slept.load(); }));
    }
    const base::Status status = comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon());
    first_sleep = nullptr;
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(sleeps_of(*comm) - first.before, rank == 0 ? 1U : 0U);
  });
}

// Rank 1 is a little late at each operation, whether that goes in arrivals, in one chunk or in
// several. For the spin limit of rank 0 that is no time at all.
TEST(ShmSpin, AShortDelayCausesNoSleep) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  constexpr auto kLate = 20us;
  constexpr long kOperations = 200;
  for (const std::size_t bytes : {8, 2048, 256 << 10}) {
    const shmem::Arena arena = make_arena({.slots = 2});
    run_all(Ranks::kThreads, 2, [&](int rank) {
      SCOPED_TRACE(fmt::format("rank {}, {} bytes", rank, bytes));
      bind_to(own_cores()[static_cast<std::size_t>(rank)]);
      const auto comm = open_comm(arena, rank, with_spin_clock());
      const Bytes in(bytes);
      Bytes out(bytes);
      ASSERT_TRUE(comm->barrier(soon()).ok());  // until then a member knows of its own core only
      const std::uint64_t before = sleeps_of(*comm);
      for (long i = 0; i < kOperations; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        while (rank == 1 && std::chrono::steady_clock::now() - begin < kLate) {
        }
        ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon()).ok());
      }
      EXPECT_EQ(sleeps_of(*comm), before);
    });
  }
}

// The limit restarts at each progress, however long all of them take: a member does not leave its
// core at each chunk of a long operation.
TEST(SpinLimit, CountsFromTheLastProgress) {
  constexpr auto kAlmost = SpinLimit::kAfterProgress - 1us;
  SpinLimit limit;
  base::TimePoint now{1h};
  for (std::uint64_t progress = 0; progress < 1000; ++progress, now += kAlmost) {
    EXPECT_TRUE(limit.allows(progress, now));
    EXPECT_TRUE(limit.allows(progress, now + kAlmost));
  }
  EXPECT_TRUE(limit.allows(999, now));
  EXPECT_FALSE(limit.allows(999, now + 1us));
  EXPECT_FALSE(limit.allows(999, now + 1h));
  EXPECT_TRUE(limit.allows(1000, now + 1h));
}

// Processor time of the calling thread, for others to read.
clockid_t own_clock() {
  clockid_t clock{};
  EXPECT_EQ(::pthread_getcpuclockid(::pthread_self(), &clock), 0);
  return clock;
}
std::chrono::nanoseconds time_of(clockid_t clock) {
  timespec at{};
  EXPECT_EQ(::clock_gettime(clock, &at), 0);
  return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
}

// Of a core, what the thread with this clock, which `waits` or is about to, uses once it has slept.
// The least of several spans: where the machine itself is taken away in its turn, that counts too.
double share_of(const shmem::Arena& arena, const std::atomic<bool>& waits, const clockid_t& clock) {
  EXPECT_TRUE(eventually([&] { return waits && arena.member_slot(0).bell.sleeping.load() != 0; }));
  std::this_thread::sleep_for(50ms);
  double least = 1;
  for (int span = 0; span < 4; ++span) {
    const auto used = time_of(clock);
    const auto begin = base::SystemClock().now();
    std::this_thread::sleep_for(100ms);
    least = std::min(least, std::chrono::duration<double>(time_of(clock) - used) /
                                std::chrono::duration<double>(base::SystemClock().now() - begin));
  }
  return least;
}

// In the middle of an all-reduce, and with a message pending: rank 1 stops after a few chunks.
TEST(ShmSpin, ABlockedMemberLeavesItsCoreToOthersInTheMidstToo) {
  if (own_cores().size() < 2) GTEST_SKIP() << "one core";
  const shmem::Arena arena = make_arena({.slots = 2});
  std::binary_semaphore measured{0};
  std::atomic<bool> waits{false};
  clockid_t clock{};
  const auto body = [&](int rank) {
    bind_to(own_cores()[static_cast<std::size_t>(rank)]);
    const auto comm = open_comm(arena, rank);
    const Bytes in(std::size_t{4} << 20);
    Bytes out(in.size()), message(8);
    ASSERT_TRUE(comm->barrier(soon()).ok());
    if (rank == 0) {
      auto receive = comm->start(Operation::receive(message, 1), soon());
      clock = own_clock();
      waits = true;
      EXPECT_EQ(comm->run(Operation::allreduce(in, out, Dtype::kFloat32), soon()).to_string(),
                "ok");
      EXPECT_EQ(receive->wait().to_string(), "ok");
      return;
    }
    auto request = comm->start(Operation::allreduce(in, out, Dtype::kFloat32), soon());
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(5ms);
      EXPECT_FALSE(request->test().value());
    }
    measured.acquire();
    EXPECT_EQ(request->wait().to_string(), "ok");
    EXPECT_EQ(comm->run(Operation::send(message, 0), soon()).to_string(), "ok");
  };
  const auto agent = [&] {
    EXPECT_LT(share_of(arena, waits, clock), 0.02);
    measured.release();
  };
  run_all(Ranks::kThreads, 2, body, agent);
}

struct Setting {
  int ranks;
  bool busy;  // the others work among themselves meanwhile
};
class ShmWaiting : public ::testing::TestWithParam<Setting> {};

// Rank 0 waits in a barrier that the last rank does not enter. Less than 2 % of a core, measured as
// processor time, which a busy machine cannot raise.
TEST_P(ShmWaiting, ABlockedMemberLeavesItsCoreToOthers) {
  const int ranks = GetParam().ranks;
  const bool busy = GetParam().busy;
  const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks)});
  std::binary_semaphore measured{0};
  std::atomic<bool> over{false};
  std::atomic<bool> waits{false};
  clockid_t clock{};
  const auto body = [&](int rank) {
    const auto comm = open_comm(arena, rank);
    auto others = comm->split(rank == 0 ? -1 : 0, soon());
    ASSERT_TRUE(others.ok()) << others.status().to_string();
    std::uint64_t go_on = busy ? 1 : 0;
    while (rank != 0 && go_on != 0) {  // until all have seen that it is over
      std::uint64_t mine = over ? 0 : 1;
      const auto in = std::as_bytes(std::span(&mine, 1));
      const auto out = std::as_writable_bytes(std::span(&go_on, 1));
      ASSERT_TRUE(
          (*others)->run(Operation::allreduce(in, out, Dtype::kInt64, Op::kMin), soon()).ok());
    }
    if (rank == 0) clock = own_clock();
    if (rank == 0) waits = true;
    if (rank == ranks - 1) measured.acquire();
    ASSERT_TRUE(comm->barrier(soon()).ok());
  };
  const auto agent = [&] {
    EXPECT_LT(share_of(arena, waits, clock), 0.02);
    over = true;
    measured.release();
  };
  run_all(Ranks::kThreads, ranks, body, agent);
}

INSTANTIATE_TEST_SUITE_P(Settings, ShmWaiting,
                         ::testing::Values(Setting{2, false}, Setting{8, false}, Setting{4, true},
                                           Setting{64, false}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) +
                                  (info.param.busy ? "Busy" : "Idle");
                         });

// The last member to arrive finds the other asleep and rings it: a sleeper would poll again by
// itself, but late.
class ShmSleeper : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ShmSleeper, IsRungByTheLastToArrive) {
  constexpr int kRounds = 30;
  const shmem::Arena arena = make_arena({.slots = 2});
  const Bytes in(GetParam());
  std::atomic<int> begun{0};  // by rank 0, which is awake then
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    Bytes out(in.size());
    const Operation operations[] = {Operation::allreduce(in, out, Dtype::kUint8),
                                    Operation::barrier(), Operation::broadcast(out, 1),
                                    Operation::broadcast(out, 0)};
    ASSERT_TRUE(comm->barrier(soon()).ok());
    int done = 0;
    for (const Operation& operation : operations) {
      const bool leaves = operation.kind == Kind::kBroadcast && operation.root == 0;
      const shmem::Doorbell<shmem::RealPolicy>& bell = arena.member_slot(0).bell;
      int rung = 0;
      for (int round = 0; round < kRounds; ++round) {
        if (rank == 0) ++begun;
        const auto asleep = [&] { return begun > done && bell.sleeping.load() != 0; };
        ASSERT_TRUE(rank == 0 || eventually(asleep));
        ++done;
        const std::uint32_t before = bell.count.load();
        ASSERT_EQ(comm->run(operation, soon()).to_string(), "ok");
        if (rank == 1 && bell.count.load() != before) ++rung;
        // Rank 0, which is done before rank 1 has come, sleeps at the next one.
        ASSERT_TRUE(!leaves || comm->barrier(soon()).ok());
      }
      // Rank 0 may often have been between two sleeps.
      EXPECT_TRUE(rank == 0 || rung > 0)
          << name_of(operation.kind) << ", root " << operation.root << ": " << rung;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Bytes, ShmSleeper, ::testing::Values(8, 100, 1900));

// Members that arrive about when others fall asleep.
TEST(ShmSleep, MembersArriveWhileOthersFallAsleep) {
  constexpr int kRounds = 2000;
  const shmem::Arena arena = make_arena({.slots = 2});
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    for (int round = 0; round < kRounds; ++round) {
      const auto end = base::SystemClock().now() + std::chrono::nanoseconds(random() % 150'000);
      while (base::SystemClock().now() < end) {
      }
      auto mine = static_cast<std::uint64_t>(round) + static_cast<std::uint64_t>(rank);
      std::uint64_t sum = 0;
      const auto in = std::as_writable_bytes(std::span(&mine, 1));
      const auto out = std::as_writable_bytes(std::span(&sum, 1));
      const base::Status status =
          round % 3 == 0 ? comm->broadcast(in, round % 2, soon())
                         : comm->run(Operation::allreduce(in, out, Dtype::kInt64), soon());
      ASSERT_EQ(status.to_string(), "ok");
      const auto base = static_cast<std::uint64_t>(round);
      ASSERT_EQ(round % 3 == 0 ? mine : sum, round % 3 == 0 ? base + base % 2 : 2 * base + 1)
          << round;
    }
  });
}

}  // namespace
}  // namespace regroup::collective::testing::shm_waiting
