// Kill and re-form cycles of the backend inside a node: 50, 1,000 with REGROUP_TEST_FULL.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/collective/cycles.h"
#include "tests/collective/harness.h"
#include "tests/collective/shm/job.h"

namespace regroup::collective::testing::shm_cycles {
namespace {

TEST(ShmCycles, ReleaseEverythingAfterKillsAndRegroups) {
  const bool full = std::getenv("REGROUP_TEST_FULL") != nullptr;
  const auto job = make_shm_job(kCycleRanks);
  run_cycles(*job, full ? Cycles{1000, 20, 256}
                        : Cycles{static_cast<proto::Generation>(rounds(50)), 20, 256});
}

}  // namespace
}  // namespace regroup::collective::testing::shm_cycles
