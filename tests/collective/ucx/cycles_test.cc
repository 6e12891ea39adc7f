// Cycles of killing a member and opening a new generation, between hosts: 20, or 1,000 with
// REGROUP_TEST_FULL.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/collective/cycles.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_cycles {
namespace {

TEST(UcxCycles, ReleaseEverythingAfterKillsAndRegroups) {
  // Sockets of members that connect before the count.
  constexpr std::size_t kEarly = 2 * kCycleRanks;
  const bool full = std::getenv("REGROUP_TEST_FULL") != nullptr;
  const auto job = make_ucx_pairs(kCycleRanks);
  run_cycles(*job, full ? Cycles{1000, 20, 512, kEarly} : Cycles{20, 12, 512, kEarly});
}

// A killed member would leave such a file in /dev/shm for ever.
TEST(UcxCycles, NoFileOfSharedMemoryIsMade) {
  const auto job = make_ucx_job({0, 1}, {});
  const auto communicator = job->open(make_world(1, 2), 0);
  ASSERT_TRUE(communicator.ok()) << communicator.status().to_string();
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_NE(text.find("libucp"), std::string::npos);
  EXPECT_EQ(text.find("ucx_shm"), std::string::npos);
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_cycles
