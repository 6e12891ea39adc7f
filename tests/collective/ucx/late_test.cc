// Ranks disagree, wait a moment for one that is late, and leave: the late rank learns it when it
// arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>

#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_late {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;

struct Board {
  std::atomic<int> left;
  std::atomic<bool> learned;
};

struct Row {
  const char* name;
  int late;
  int odd;   // the rank in another operation
  bool met;  // an operation has succeeded before
  bool go;   // the processes of the other ranks have ended
};
constexpr Row kRows[] = {
    {"TheHighestRank", 3, 1, false, false},
    {"TheLowestRankWhichConnectsToTheOthers", 0, 2, false, false},
    {"OneThatWasConnected", 3, 1, true, false},
    {"OneThatFindsNoRankAlive", 0, 2, false, true},
};

class UcxLate : public ::testing::TestWithParam<Row> {};

TEST_P(UcxLate, ALateRankLearnsOfAMismatch) {
  const Row& row = GetParam();
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const board = new (memory) Board();
  const auto job = make_ucx_job({0, 1, 2, 3}, {.config = {{"TLS", "tcp"}}});
  run_all(Ranks::kProcesses, kRanks, [&](int rank) {
    const auto mine = job->in_child();
    auto comm = mine->open(make_world(1, kRanks), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    if (row.met) {
      ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
    }
    EXPECT_TRUE(rank != row.late || eventually([&] { return board->left == kRanks - 1; }));
    const std::size_t elements = rank == row.odd ? 20 : 10;
    const base::Status status =
        run_checked(**comm, {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, elements}, 1, soon());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(row.odd) + " "));
    comm->reset();
    if (rank == row.late) {
      board->learned = true;
    } else {
      ++board->left;
      EXPECT_TRUE(row.go || eventually([&] { return board->learned.load(); }));
    }
  });
  ::munmap(memory, sizeof(Board));
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxLate, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace regroup::collective::testing::ucx_late
