// Warm members beyond the target: --spares.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {
namespace {

SimOptions with_spares(std::uint32_t spares, std::uint32_t slots = 8) {
  SimOptions o;
  o.policy.spares = spares;
  o.policy.slots = slots;
  o.arena_slots = 8;
  return o;
}

std::uint32_t running(const SimJob& job) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(job.members, [](const auto& m) { return m.second.alive; }));
}

TEST_F(JobTest, ASpareWaitsWarmAndTakesThePlaceOfTheLost) {
  SimJob& job = start(with_spares(1));
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 4 && job.member(3).ready; }));
  job.pass(std::chrono::seconds(5));
  EXPECT_EQ(job.generation(), 1U) << "it is not needed";
  EXPECT_EQ(job.member(3).start, (proto::Start{3, 3, 4, 0}));
  job.kill(1);
  ASSERT_TRUE(job.steady(2, 3)) << "in one World, without a smaller one between";
  EXPECT_EQ(job.journal->members.back().id, 3U);
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 5 && job.member(4).ready; }))
      << "the next spare";
  expect_success(job);
}

TEST_F(JobTest, SparesTakeNoMoreThanTheSlots) {
  SimJob& job = start(with_spares(3, 4));
  ASSERT_TRUE(job.run_until([&] { return job.members.size() == 4 && job.member(3).ready; }));
  job.pass(std::chrono::seconds(2));
  ASSERT_TRUE(job.run_until([&] { return job.member(0).applied > 20; }));
  EXPECT_EQ(running(job), 4U);
  expect_success(job);
}

TEST_F(JobTest, AResizeKeepsTheSpares) {
  SimJob& job = start(with_spares(1));
  ASSERT_TRUE(job.run_until([&] { return running(job) == 4 && job.member(3).ready; }));
  EXPECT_TRUE(job.ask(proto::ResizeRequest{2}).ok);
  ASSERT_TRUE(job.steady(2, 2));
  ASSERT_TRUE(job.run_until([&] { return running(job) == 3; }));
  EXPECT_TRUE(job.member(3).alive);
  EXPECT_TRUE(job.ask(proto::ResizeRequest{3}).ok);
  ASSERT_TRUE(job.steady(3, 3));
  EXPECT_GE(job.journal->rank_of(proto::MemberId{3}), 0);
  ASSERT_TRUE(job.run_until([&] { return running(job) == 4; }));
  expect_success(job);
}

TEST_F(JobTest, ASpareThatLeavesDoesNotMakeTheJobSmaller) {
  SimJob& job = start(with_spares(1));
  ASSERT_TRUE(job.run_until([&] { return running(job) == 4 && job.member(3).ready; }));
  EXPECT_TRUE(job.ask(proto::NoticeRequest{3}).ok);
  ASSERT_TRUE(job.run_until([&] { return !job.member(3).alive; }));
  ASSERT_TRUE(job.run_until([&] { return running(job) == 4 && job.members.size() == 5; }));
  EXPECT_EQ(job.journal->size(), 3U);
  expect_success(job);
}

TEST_F(JobTest, SparesEndWhenTheJobFinishes) {
  SimJob& job = start(with_spares(2));
  expect_success(job);
  job.bury();
  for (const auto& [id, m] : job.members) {
    if (id >= 3) {
      EXPECT_EQ(m.world.generation, 0U);
    }
  }
}

}  // namespace
}  // namespace regroup::membership
