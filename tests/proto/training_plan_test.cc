// Epochs and samples of steps, also of numbers that nobody means.
#include "proto/training_plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace regroup::proto {
namespace {

TEST(TrainingPlan, CountsStepsAndSamples) {
  constexpr TrainingPlan plan{.samples = 100, .batch = 32, .epochs = 3};  // 32, 32, 32, 4
  static_assert(plan.steps_per_epoch() == 4 && plan.last_step() == 12);
  EXPECT_EQ(plan.samples_after(0), 0);
  EXPECT_EQ(plan.samples_after(3), 96);
  EXPECT_EQ(plan.samples_after(4), 100);
  EXPECT_EQ(plan.samples_after(5), 132);
  EXPECT_EQ(plan.samples_after(12), 300);
}

TEST(TrainingPlan, SubstepsShareABatch) {
  constexpr TrainingPlan plan{.samples = 64, .batch = 32, .substeps = 2};
  EXPECT_EQ(plan.steps_per_epoch(), 4U);
  EXPECT_EQ(plan.last_step(), std::nullopt);
  EXPECT_EQ(plan.samples_after(1), 0);  // the batch is not done yet
  EXPECT_EQ(plan.samples_after(2), 32);
  EXPECT_EQ(plan.samples_after(4), 64);
}

TEST(TrainingPlan, SaysUnknownOfNumbersThatNoTrainingHas) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const TrainingPlan none, no_batch{.samples = 5}, no_substeps{5, 1, 0, 1}, long_epoch{kMost, 1},
      huge{kMost, kMost, 1, kMost};
  for (const TrainingPlan& plan : {none, no_batch, no_substeps, long_epoch}) {
    EXPECT_EQ(plan.steps_per_epoch(), 0U);
    EXPECT_EQ(plan.last_step(), std::nullopt);
    EXPECT_EQ(plan.samples_after(kMaxStep), 0);
  }
  EXPECT_EQ(huge.steps_per_epoch(), 1U);
  EXPECT_EQ(huge.last_step(), std::nullopt);
  EXPECT_GT(huge.samples_after(kMaxStep), 1e28);
}

}  // namespace
}  // namespace regroup::proto
