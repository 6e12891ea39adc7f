// What members read about carriers in their environment.
#include "elastic/carrier_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace regroup::elastic {
namespace {

class CarrierSettings : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("REGROUP_MPI_PROGRAM", "/bin/regroup-mpi", 1); }
  void TearDown() override {
    ::unsetenv("REGROUP_MPI_PROGRAM");
    ::unsetenv("REGROUP_PLANE");
  }
};

TEST_F(CarrierSettings, NameTheProgramInAJobWithPlaneMpi) {
  ::setenv("REGROUP_PLANE", "mpi", 1);
  const auto settings = carrier_settings({});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->program, "/bin/regroup-mpi");
}

TEST_F(CarrierSettings, ScaleTheirLimits) {
  ::setenv("REGROUP_PLANE", "mpi", 1);
  ::setenv("REGROUP_TIME_LIMIT_FACTOR", "0.5", 1);
  EXPECT_EQ(carrier_settings({})->limits.answer, std::chrono::seconds(5));
  EXPECT_EQ(carrier_settings({})->limits.start, std::chrono::seconds(60));
  ::unsetenv("REGROUP_TIME_LIMIT_FACTOR");
}

// Else each join of any job would look for an MPI in the file system.
TEST_F(CarrierSettings, AreEmptyInOtherJobs) { EXPECT_FALSE(carrier_settings({})); }

}  // namespace
}  // namespace regroup::elastic
