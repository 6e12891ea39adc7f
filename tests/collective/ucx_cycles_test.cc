// Kill and re-form cycles of the backend between nodes: 20, 200 with REGROUP_TEST_FULL.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/collective/cycles.h"
#include "tests/collective/ucx_job.h"

namespace regroup::collective::testing {
namespace {

TEST(UcxCycles, KilledAndFormedAgainHoldsNothingBack) {
  constexpr std::size_t kCallers = 2 * kCycleRanks;  // sockets of members that call before we count
  const bool full = std::getenv("REGROUP_TEST_FULL") != nullptr;
  const auto job = make_ucx_pairs(kCycleRanks);
  // Memory has settled by then, or nearly so.
  run_cycles(*job, full ? Cycles{200, 200, 2048, kCallers} : Cycles{20, 12, 16384, kCallers});
}

}  // namespace
}  // namespace regroup::collective::testing
