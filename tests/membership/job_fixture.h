// Starts a simulated job and, after each test, checks that no invariant of SimJob was violated.
#pragma once

#include <gtest/gtest.h>

#include "tests/membership/sim_job.h"

namespace regroup::membership {

class JobTest : public testing::Test {
 protected:
  SimJob& start(SimOptions options = {}) {
    options.steps = 100;
    job_.emplace(std::move(options));
    EXPECT_TRUE(job_->steady(1, job_->options.policy.target))
        << job_->coordinator->status_json(job_->now);
    return *job_;
  }
  void TearDown() override {
    if (job_) {
      EXPECT_EQ(job_->broken, std::vector<std::string>{});
    }
  }
  static SimOptions never_replaced() {
    SimOptions o;
    o.policy.replace = false;
    return o;
  }
  void expect_success(SimJob& job) {
    ASSERT_TRUE(job.run_to_end()) << job.coordinator->status_json(job.now);
    EXPECT_EQ(job.end->exit_code, 0) << job.end->reason;
    for (const auto& [id, m] : job.members) {
      if (m.world.generation == job.generation()) {
        EXPECT_EQ(m.applied, job.options.steps) << "member " << id;
      }
    }
  }
  std::optional<SimJob> job_;
};

}  // namespace regroup::membership
