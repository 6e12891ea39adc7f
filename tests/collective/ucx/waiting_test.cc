// A member spins only where every member of its host can have a core for itself: the decision of
// the local communicator, which knows the cores of all.
#include <gtest/gtest.h>

#include "collective/ucx/communicator.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_waiting {
namespace {

constexpr int kRanks = 3;  // the third on a host of its own

struct Binding {
  const char* name;
  int to[2];  // ranks 0 and 1: which of our cores
  bool spins;
};

TEST(UcxSpin, RanksSpinOnlyIfEachMemberOfTheHostHasACore) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  constexpr Binding kRows[] = {{"each to its own", {0, 1}, true}, {"both to one", {0, 0}, false}};
  for (const Binding& row : kRows) {
    SCOPED_TRACE(row.name);
    const auto job = make_ucx_job({0, 0, 1}, {.config = {{"TLS", "tcp"}}});
    run_all(Ranks::kProcesses, kRanks, [&](int rank) {
      if (rank < 2) bind_to(cores[static_cast<std::size_t>(row.to[rank])]);
      const auto mine = job->in_child();
      const auto comm = mine->open(make_world(1, kRanks), rank);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
      const ucx::Engine& engine = dynamic_cast<const ucx::UcxCommunicator&>(**comm).engine();
      EXPECT_EQ(engine.spins(), rank == 2 || row.spins) << "rank " << rank;
    });
  }
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_waiting
