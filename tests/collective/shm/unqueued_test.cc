// Blocking operations that need several synchronisation points: repeated ones use cached plans, and
// all run without the queue while the peers answer within the spin limit. Tested: the number of
// points, changing places of the peers' memory, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tests/collective/exchange.h"
#include "tests/collective/shm/comm.h"

namespace regroup::collective::testing::shm_unqueued {
namespace {

using base::Code;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

Shape shape_of(Kind kind, std::size_t whole, int ranks) {
  const std::size_t parts = is_split(kind) ? static_cast<std::size_t>(ranks) : 1;
  return {kind, Dtype::kFloat32, Op::kSum, 0, whole / 4 / parts};
}

// Bytes of a contribution that are copied; 8 more are looked up in the arena.
struct Limit {
  Kind kind;
  int ranks;
  bool on_one_core;
  std::size_t copied;
};
class ShmLimits : public ::testing::TestWithParam<Limit> {};

TEST_P(ShmLimits, CopiedDataNeedsOneSyncPoint) {
  const Limit limit = GetParam();
  const int ranks = limit.ranks;
  const std::vector<int> cores = own_cores();
  if (!limit.on_one_core && cores.size() < static_cast<std::size_t>(ranks))
    GTEST_SKIP() << cores.size() << " cores";
  const std::size_t most = 4 * (limit.copied + 64);
  const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks),
                                         .elements = static_cast<std::size_t>(ranks) * most});
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    bind_to(cores[limit.on_one_core ? 0 : static_cast<std::size_t>(rank)]);
    const auto slot = static_cast<proto::SlotIndex>(rank);
    const auto comm = open_comm(arena, rank);
    ASSERT_TRUE(comm->barrier(soon()).ok());  // now the members know their cores
    for (const bool is_more : {false, true}) {
      const Shape shape = shape_of(
          limit.kind, limit.copied + (is_more ? 4U * static_cast<unsigned>(ranks) : 0), ranks);
      for (std::uint64_t time = 0; time < 3; ++time) {
        const Room room{arena.buffer(slot, 0), arena.buffer(slot, 1)};
        Exchange exchange(shape, rank, ranks, make_inputs(shape, ranks, time), room);
        const std::uint64_t before = arrivals_in(arena.member_slot(slot).channels[0]);
        ASSERT_EQ(comm->run(exchange.operation(), soon()).to_string(), "ok");
        const std::uint64_t sync_points = arrivals_in(arena.member_slot(slot).channels[0]) - before;
        ASSERT_EQ(exchange.verify(), "");
        EXPECT_EQ(sync_points > 1, is_more || time == 0)
            << shape.to_string();  // the first one synchronises
      }
    }
  });
}

constexpr std::size_t kKiB = 1 << 10;
INSTANTIATE_TEST_SUITE_P(Kinds, ShmLimits,
                         ::testing::Values(Limit{Kind::kAllreduce, 2, false, 4 * kKiB},
                                           Limit{Kind::kAllgather, 2, false, 8 * kKiB},
                                           Limit{Kind::kReduceScatter, 2, false, 8 * kKiB},
                                           Limit{Kind::kAlltoall, 2, false, 32 * kKiB},
                                           Limit{Kind::kAllreduce, 2, true, 16 * kKiB},
                                           Limit{Kind::kAllreduce, 4, true, 8 * kKiB},
                                           Limit{Kind::kAllgather, 2, true, 32 * kKiB},
                                           Limit{Kind::kReduceScatter, 4, true, 32 * kKiB}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.kind)) +
                                  std::to_string(info.param.ranks) +
                                  (info.param.on_one_core ? "OnOneCore" : "");
                         });

class ShmUnqueued : public ::testing::TestWithParam<Ranks> {};

// Rank 0 repeats the same operations, so it uses cached plans; the place of its peers' memory
// selects the algorithm each time.
TEST_P(ShmUnqueued, ReadsPeersWhoseMemoryMoves) {
  constexpr Kind kKinds[] = {Kind::kAllreduce, Kind::kReduce,   Kind::kReduceScatter,
                             Kind::kAllgather, Kind::kAlltoall, Kind::kBroadcast,
                             Kind::kGather,    Kind::kScatter};
  constexpr std::size_t kWholes[] = {40'000, 200'000};
  for (const int ranks : {2, 3}) {
    const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks),
                                           .elements = static_cast<std::size_t>(ranks) * 51'000});
    run_ranks(arena, GetParam(), ranks, [&](const shmem::Arena& mine, int rank) {
      const auto slot = static_cast<proto::SlotIndex>(rank);
      const auto comm = open_comm(mine, rank);
      for (std::uint64_t time = 0; time < 12; ++time) {
        for (const Kind kind : kKinds) {
          for (const std::size_t whole : kWholes) {
            const Shape shape = shape_of(kind, whole, ranks);
            Room room{mine.buffer(slot, 0), mine.buffer(slot, 1)};
            if (rank > 0 && (time & 1) != 0) room.in = {};
            if (rank > 0 && (time & 2) != 0) room.out = {};
            if (rank > 1 && (time & 4) != 0) room = {};
            Exchange exchange(shape, rank, ranks, make_inputs(shape, ranks, time), room);
            ASSERT_EQ(comm->run(exchange.operation(), soon()).to_string(), "ok")
                << shape.to_string();
            ASSERT_EQ(exchange.verify(), "") << shape.to_string() << ", time " << time;
            exchange.spoil_input();
            exchange.spoil_output();
          }
        }
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, ShmUnqueued,
#ifdef __SANITIZE_THREAD__  // sees no race between processes and makes them slow
                         ::testing::Values(Ranks::kThreads),
#else
                         ::testing::Values(Ranks::kThreads, Ranks::kProcesses),
#endif
                         [](const auto& info) {
                           return info.param == Ranks::kThreads ? "Threads" : "Processes";
                         });

// After operations that were equal.
TEST(ShmUnqueuedFailure, NamesAMismatch) {
  constexpr std::size_t kBytes = 300'000;
  const shmem::Arena arena = make_arena({.slots = 2});
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    const Bytes in(kBytes);
    Bytes out(kBytes);
    const auto run = [&](Op op) {
      return comm->run(Operation::allreduce(in, out, Dtype::kFloat32, op), soon());
    };
    for (int i = 0; i < 4; ++i) ASSERT_EQ(run(i % 2 == 0 ? Op::kSum : Op::kMax).to_string(), "ok");
    const base::Status status = run(rank == 0 ? Op::kSum : Op::kMax);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("allreduce of 300000 bytes (float32, sum)"));
    EXPECT_THAT(status.message(), HasSubstr("allreduce of 300000 bytes (float32, max)"));
    EXPECT_EQ(run(Op::kSum).to_string(), status.to_string());  // for ever
  });
}

TEST(ShmUnqueuedFailure, EndsAtADeadlineAmongRunningRanks) {
  constexpr std::size_t kBytes = 64 << 20;
  const shmem::Arena arena = make_arena({.slots = 2});
  run_all(Ranks::kThreads, 2, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    const Bytes in(kBytes);
    Bytes out(kBytes);
    const Operation operation = Operation::allreduce(in, out, Dtype::kFloat32, Op::kSum);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(comm->run(operation, soon()).to_string(), "ok");
    const base::Status status = comm->run(operation, base::SystemClock().now() + 500us);
    EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
  });
}

TEST(ShmUnqueuedFailure, RevokeEndsARunningOperation) {
  const shmem::Arena arena = make_arena({.slots = 2});
  run_all(
      Ranks::kThreads, 2,
      [&](int rank) {
        const auto comm = open_comm(arena, rank);
        const Bytes in(1 << 20);
        Bytes out(in.size());
        base::Status status;
        while (status.ok())
          status = comm->run(Operation::allreduce(in, out, Dtype::kFloat32, Op::kSum), soon());
        EXPECT_EQ(status.to_string(), base::revoked("generation 1 is over").to_string());
      },
      [&] {
        std::this_thread::sleep_for(50ms);
        revoke_all(arena, 1);
      });
}

}  // namespace
}  // namespace regroup::collective::testing::shm_unqueued
