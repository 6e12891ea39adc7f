// As many ranks as a large node has, on few cores: every kind, in arrivals, in inline chunks and
// copies, and chunk by chunk.
#include <gtest/gtest.h>

#include <algorithm>

#include "collective/shm/factory.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_many {
namespace {

class ShmMany : public ::testing::TestWithParam<int> {};

struct Round {
  Shape shape;
  Inputs inputs;

  // Large reductions take long to verify: one rank in eight does.
  [[nodiscard]] bool is_verified_by(int rank) const {
    const bool reduces = shape.kind == Kind::kAllreduce || shape.kind == Kind::kReduce ||
                         shape.kind == Kind::kReduceScatter;
    return !reduces || (*inputs)[0].size() < 100'000 || rank % 8 == 0;
  }
};

// Of about 8 bytes, 2 KiB and 200 KB in all of the larger of input and output.
std::vector<Round> rounds_of(int ranks) {
  std::vector<Round> rounds;
  for (const Kind kind : kCollectives) {
    const bool whole =
        kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kBroadcast;
    for (const std::size_t bytes : {8, 2048, 200'000}) {
      const std::size_t pieces = whole || bytes == 8 ? 1 : static_cast<std::size_t>(ranks);
      const Shape shape{kind, Dtype::kFloat32, Op::kSum, ranks / 2,
                        std::max<std::size_t>(1, bytes / 4 / pieces)};
      rounds.push_back({shape, make_inputs(shape, ranks, rounds.size())});
    }
  }
  return rounds;
}

TEST_P(ShmMany, RunsEveryKindAtEverySize) {
  const int ranks = GetParam();
  const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks)});
  const proto::World world = make_world(1, static_cast<std::uint32_t>(ranks));
  const std::vector<Round> rounds = rounds_of(ranks);
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    auto comm = shm::make_shm(arena, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    for (const Round& round : rounds) {
      const Exchange exchange(round.shape, rank, ranks, round.inputs, {});
      const base::Status status = (*comm)->run(exchange.operation(), soon());
      ASSERT_TRUE(status.ok()) << round.shape.to_string() << ": " << status.to_string();
      if (round.is_verified_by(rank)) {
        ASSERT_EQ(exchange.verify(), "");
      }
    }
    ASSERT_TRUE((*comm)->barrier(soon()).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmMany, ::testing::Values(16, 33, 64),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace regroup::collective::testing::shm_many
