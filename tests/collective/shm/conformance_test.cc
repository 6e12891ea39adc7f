// Tests what every operation guarantees if nothing fails, for 1 to 9 ranks, which are threads or
// processes: the bits of the canonical tree for every partition, data of any size, order. Delays
// are random, seeds fixed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/factory.h"
#include "collective/tree_reducer.h"
#include "tests/collective/covers.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_conformance {
namespace {

constexpr proto::Generation kGeneration = 1;
// The largest result in these tests: several slices of cache lines.
constexpr std::size_t kMostElements = 3000;

struct Case {
  Ranks kind;
  int size;
};

class Shm : public ::testing::TestWithParam<Case> {
 protected:
  using Body = std::function<void(Communicator&, std::mt19937_64&)>;

  // Runs `body` in every rank of a fresh world.
  void run(const Body& body) {
    const auto size = static_cast<std::uint32_t>(GetParam().size);
    const shmem::Arena arena =
        make_arena({.slots = size, .shards = 64, .elements = 2 * kMostElements});
    const proto::World world = make_world(kGeneration, size);
    run_ranks(arena, GetParam().kind, GetParam().size, [&](const shmem::Arena& mine, int rank) {
      auto comm = shm::make_shm(mine, world, {0, static_cast<proto::SlotIndex>(rank)});
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      ASSERT_EQ((*comm)->rank(), rank);
      ASSERT_EQ((*comm)->size(), GetParam().size);
      std::mt19937_64 random(static_cast<std::uint64_t>(rank));
      own_arena = &mine;
      body(**comm, random);
    });
  }

  static thread_local const shmem::Arena* own_arena;  // of the rank
};
thread_local const shmem::Arena* Shm::own_arena = nullptr;

std::vector<std::vector<std::byte>> make_leaves(Dtype dtype, std::size_t count,
                                                std::size_t elements, std::uint64_t seed) {
  std::vector<std::vector<std::byte>> leaves;
  for (std::size_t i = 0; i < count; ++i)
    leaves.push_back(make_leaf(dtype, elements, seed * 1000 + i, true));
  return leaves;
}

TEST_P(Shm, AllreduceHasTheBitsOfTheTree) {
  run([](Communicator& comm, std::mt19937_64& random) {
    std::uint64_t seed = 0;
    for (Dtype dtype : {Dtype::kFloat32, Dtype::kInt64}) {
      const std::size_t chunk = shm::kChunk / size_of(dtype);
      for (std::size_t elements :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{17},
            std::size_t{1023}, chunk / 8 + 1, chunk, 2 * chunk + 9}) {
        const auto leaves =
            make_leaves(dtype, static_cast<std::size_t>(comm.size()), elements, ++seed);
        const auto& mine = leaves[static_cast<std::size_t>(comm.rank())];
        std::vector<std::byte> out(mine.size() + 1);
        const std::size_t skew = seed % 2;  // of any alignment, and in place as well
        std::span<std::byte> target(out.data() + skew, mine.size());
        if (skew == 1 && !mine.empty()) std::memcpy(target.data(), mine.data(), mine.size());
        dawdle(random);
        const auto status =
            comm.allreduce(skew == 1 ? target : std::span(mine), target, dtype, soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
        const auto want =
            reference_sum(dtype, leaves, {0, static_cast<std::uint32_t>(comm.size())});
        ASSERT_TRUE(std::ranges::equal(target, want)) << elements << " elements";
      }
    }
  });
}

// An alltoall of this size uses the compact ring, the operations between use all of it.
TEST_P(Shm, RunsLargeOperationsOfDifferentKindsInTurn) {
  run([](Communicator& comm, std::mt19937_64& random) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::pair<Kind, std::size_t> blocks[] = {{Kind::kAlltoall, (9 << 17) / ranks + 1},
                                                   {Kind::kBroadcast, 5 << 17},
                                                   {Kind::kAlltoall, (9 << 17) / ranks + 1},
                                                   {Kind::kAllgather, (17 << 17) + 3},
                                                   {Kind::kAllgather, 5 << 15}};
    std::uint64_t seed = 0;
    for (const auto& [kind, elements] : blocks) {
      dawdle(random);
      const Shape shape{kind, Dtype::kUint8, Op::kSum, comm.size() - 1, elements, seed % 2 == 1};
      const auto status = run_checked(comm, shape, ++seed, soon());
      ASSERT_TRUE(status.ok()) << shape.to_string() << ": " << status.to_string();
    }
  });
}

TEST_P(Shm, BroadcastCopiesFromEveryRoot) {
  run([](Communicator& comm, std::mt19937_64& random) {
    for (int root = 0; root < comm.size(); ++root) {
      for (std::size_t bytes : {0, 1, 63, 64, 1000, 262'144, 600'001}) {
        const auto want =
            make_leaf(Dtype::kInt64, bytes / 8 + 1, bytes + static_cast<std::size_t>(root));
        std::vector<std::byte> data(bytes);
        if (comm.rank() == root && bytes > 0) std::memcpy(data.data(), want.data(), bytes);
        dawdle(random);
        const auto status = comm.broadcast(data, root, soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
        ASSERT_TRUE(std::ranges::equal(data, std::span(want).first(bytes)))
            << bytes << " from " << root;
      }
    }
  });
}

// No rank leaves barrier k before all have entered it: a counter in shared memory proves it.
TEST_P(Shm, BarrierOrders) {
  run([](Communicator& comm, std::mt19937_64& random) {
    auto& entered = *reinterpret_cast<std::atomic<int>*>(own_arena->buffer(0, 0).data());
    for (int k = 1; k <= 200; ++k) {
      dawdle(random);
      entered.fetch_add(1, std::memory_order_relaxed);
      const auto status = comm.barrier(soon());
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_GE(entered.load(std::memory_order_relaxed), k * comm.size());
      ASSERT_LT(entered.load(std::memory_order_relaxed), (k + 1) * comm.size());
    }
  });
}

TEST_P(Shm, TreeReductionsHaveTheSameBitsForEveryCover) {
  run([](Communicator& comm, std::mt19937_64& random) {
    std::mt19937_64 common(42);
    proto::Step step = 0;
    for (std::uint32_t count = 1; count <= 64; ++count) {
      for (Dtype dtype : kDtypes) {
        const std::size_t elements = common() % (common() % 64 == 0 ? kMostElements : 40);
        const auto leaves = make_leaves(dtype, count, elements, ++step);
        const auto want = reference_sum(dtype, leaves, {0, count});
        const std::vector<Sealed> parts = seal(dtype, leaves, common);
        std::vector<Partial> partials;
        for (const Sealed& part : parts) partials.push_back({part.leaves, part.sum});
        const auto result = own_arena->result(step).first(want.size());
        dawdle(random);
        const auto status = comm.tree_reducer().reduce(partials, count, result, dtype, soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
        ASSERT_TRUE(std::ranges::equal(result, want))
            << count << " leaves, " << elements << " elements of " << name_of(dtype);
        ASSERT_TRUE(comm.barrier(soon()).ok());  // as the vote: the result may be written again
      }
    }
  });
}

// Tests the argument about bounce buffers (communicator.cc): any operations in sequence, at random
// speeds.
TEST_P(Shm, RunsRandomSequencesOfOperations) {
  run([](Communicator& comm, std::mt19937_64& random) {
    std::mt19937_64 common(7);
    for (int k = 0; k < 100; ++k) {
      const std::uint64_t seed = common();
      const std::size_t elements = seed % 8 == 0 ? 70'000 + seed % 70'000 : seed % 4000;
      const auto leaves =
          make_leaves(Dtype::kInt32, static_cast<std::size_t>(comm.size()), elements, seed);
      std::vector<std::byte> mine = leaves[static_cast<std::size_t>(comm.rank())];
      const int root = static_cast<int>(common() % static_cast<std::uint64_t>(comm.size()));
      const std::uint64_t operation = common() % 5;
      dawdle(random);
      if (operation == 0) {
        ASSERT_TRUE(comm.barrier(soon()).ok());
      } else if (operation <= 2) {
        ASSERT_TRUE(comm.broadcast(mine, root, soon()).ok());
        ASSERT_EQ(mine, leaves[static_cast<std::size_t>(root)]) << "operation " << k;
      } else {
        ASSERT_TRUE(comm.allreduce(mine, mine, Dtype::kInt32, soon()).ok());
        const auto want =
            reference_sum(Dtype::kInt32, leaves, {0, static_cast<std::uint32_t>(comm.size())});
        ASSERT_EQ(mine, want) << "operation " << k;
      }
    }
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int size = 1; size <= 9; ++size) {
    all.push_back({Ranks::kThreads, size});
#ifndef __SANITIZE_THREAD__  // sees no race between processes and makes them slow
    all.push_back({Ranks::kProcesses, size});
#endif
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Shm, ::testing::ValuesIn(cases()), [](const auto& info) {
  return (info.param.kind == Ranks::kThreads ? "Threads" : "Processes") +
         std::to_string(info.param.size);
});

}  // namespace
}  // namespace regroup::collective::testing::shm_conformance
