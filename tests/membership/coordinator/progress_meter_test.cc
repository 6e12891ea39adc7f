// Epochs, speeds and forecasts from the times at which steps were seen.
#include "membership/coordinator/progress_meter.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

namespace regroup::membership {
namespace {

using namespace std::chrono_literals;

constexpr proto::TrainingPlan kPlan{.samples = 100, .batch = 10, .epochs = 3};  // 10 steps each

class ProgressMeterTest : public testing::Test {
 protected:
  // A second passes, then `step` is seen.
  void see(proto::Step step) { meter_.observe(now_ += 1s, step); }
  TrainingProgress shown(const proto::TrainingPlan& plan = kPlan) {
    return meter_.progress(now_, plan);
  }
  base::TimePoint now_{1000s};
  ProgressMeter meter_;
};

TEST_F(ProgressMeterTest, KnowsNothingAtFirst) { EXPECT_EQ(shown({}), TrainingProgress{}); }

TEST_F(ProgressMeterTest, TheEpochIsThatOfTheNextStepAndAfterTheLastTheLast) {
  const std::tuple<proto::Step, std::uint64_t, double> kRows[] = {
      {0, 1, 0}, {1, 1, 0.1}, {9, 1, 0.9}, {10, 2, 0}, {29, 3, 0.9}, {30, 3, 1}, {31, 3, 1}};
  for (const auto& [step, epoch, done] : kRows) {
    see(step);
    EXPECT_EQ(shown().epoch, epoch) << step;
    EXPECT_DOUBLE_EQ(*shown().epoch_done, done) << step;
    EXPECT_EQ(shown().epochs, 3U);
  }
}

TEST_F(ProgressMeterTest, WithoutAPlanOnlyStepsAreKnown) {
  see(0), see(5);
  const TrainingProgress all = shown({});
  EXPECT_EQ(all.step, 5U);
  EXPECT_DOUBLE_EQ(*all.steps_per_second, 5);
  EXPECT_FALSE(all.epoch || all.epochs || all.epoch_done || all.samples_per_second ||
               all.seconds_left);
}

TEST_F(ProgressMeterTest, WithoutAnEndThereIsNoForecast) {
  see(0), see(5);
  const TrainingProgress all = shown({.samples = 100, .batch = 10});
  EXPECT_EQ(all.epoch, 1U);
  EXPECT_FALSE(all.epochs || all.seconds_left);
  EXPECT_DOUBLE_EQ(*all.samples_per_second, 50);
}

TEST_F(ProgressMeterTest, ForecastsByTheSpeed) {
  see(0), see(2), see(4);
  EXPECT_DOUBLE_EQ(*shown().samples_per_second, 20);
  EXPECT_DOUBLE_EQ(*shown().seconds_left, 13);
  see(30);
  EXPECT_FALSE(shown().seconds_left);
}

TEST_F(ProgressMeterTest, StepsBeforeTheFirstObservationDoNotCount) {
  see(1000), see(1002);  // a job that resumes
  EXPECT_DOUBLE_EQ(*shown({.samples = 100, .batch = 1}).samples_per_second, 2);
}

TEST_F(ProgressMeterTest, AStepCountsOnceAndNothingGoesBack) {
  see(10), see(12), see(3), see(12);  // a member that catches up, and a World that begins anew
  EXPECT_EQ(shown().step, 12U);
  see(14);
  EXPECT_DOUBLE_EQ(*shown().steps_per_second, 1);  // 4 in 4 s
}

TEST_F(ProgressMeterTest, TheWindowSlides) {
  for (proto::Step step = 0; step < 100; ++step) see(step);
  for (proto::Step step = 100; step < 164; step += 2) see(step);
  EXPECT_DOUBLE_EQ(*shown({}).steps_per_second, 2);
}

TEST_F(ProgressMeterTest, OfSlowStepsThreeAreMeasured) {
  for (proto::Step step = 0; step < 9; ++step) {
    now_ += 99s;
    see(step);
  }
  EXPECT_DOUBLE_EQ(*shown({}).steps_per_second, 0.01);
  now_ += 100s;  // the next one may take so long
  EXPECT_DOUBLE_EQ(*shown({}).steps_per_second, 0.01);
}

TEST_F(ProgressMeterTest, AStallSlowsTheJobDownAndIsForgotten) {
  for (proto::Step step = 0; step <= 20; ++step) see(step);
  EXPECT_DOUBLE_EQ(*shown({}).steps_per_second, 1);
  now_ += 101s;
  EXPECT_NEAR(*shown({}).steps_per_second, 20.0 / 120, 1e-9);
  for (proto::Step step = 21; step < 25; ++step) see(step);
  EXPECT_DOUBLE_EQ(*shown({}).steps_per_second, 1);
}

TEST_F(ProgressMeterTest, ReportsOfSeveralHostsAreOneObservation) {
  for (int i = 0; i < 100000; ++i) meter_.observe(now_ += 1ms, static_cast<proto::Step>(i));
  EXPECT_NEAR(*shown({}).steps_per_second, 1000, 10);
  EXPECT_EQ(shown({}).step, 99999U);
}

TEST_F(ProgressMeterTest, AMomentSaysNothing) {
  see(0);
  meter_.observe(now_ += 400ms, 1);
  EXPECT_FALSE(shown().steps_per_second);
}

TEST_F(ProgressMeterTest, AStepThatNoTrainingHasIsCut) {
  see(std::numeric_limits<proto::Step>::max());
  EXPECT_EQ(shown().step, proto::kMaxStep);
  EXPECT_DOUBLE_EQ(*shown().epoch_done, 1);
}

}  // namespace
}  // namespace regroup::membership
