// The number of local barriers of an operation over several hosts: with more ranks than cores, each
// one is a context switch.
#include <gtest/gtest.h>

#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_local_barrier {
namespace {

constexpr int kRanks = 4;

TEST(UcxLocalBarrier, AnAllreduceUsesFewLocalBarriers) {
  constexpr struct {
    std::size_t bytes;
    std::uint64_t times;
  } kRows[] = {
      {8, 2},          // reduce to the leader of the host, then broadcast
      {64 << 10, 2},   //
      {128 << 10, 2},  // each rank sends and gets its slices
      {512 << 10, 4},  // in two chunks
  };
  const auto job = make_ucx_pairs(kRanks);
  const auto body = [&](int rank) {
    const auto mine = job->in_child();
    auto communicator = mine->open(make_world(1, kRanks), rank);
    ASSERT_TRUE(communicator.ok()) << communicator.status().to_string();
    const auto allreduce = [&](std::size_t bytes) {
      return run_checked(**communicator,
                         {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, bytes / 4}, 1, soon());
    };
    ASSERT_TRUE(allreduce(8).ok());  // the first operation has one more barrier
    for (const auto& row : kRows) {
      const std::uint64_t before = local_barriers(*mine, rank);
      ASSERT_TRUE(allreduce(row.bytes).ok());
      EXPECT_EQ(local_barriers(*mine, rank) - before, row.times) << row.bytes;
    }
  };
  run_all(Ranks::kProcesses, kRanks, body);
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_local_barrier
