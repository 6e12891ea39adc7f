// Simulates a job on several hosts; by default three with two slots each.
#pragma once

#include <gmock/gmock.h>

#include "tests/membership/job_fixture.h"

namespace regroup::membership {

inline SimOptions three_hosts() {
  SimOptions o;
  o.hosts = {2, 2, 2};
  o.policy = {.min = 2, .max = 6, .target = 0, .shards = 8};
  return o;
}

class HostsTest : public JobTest {
 protected:
  SimJob& start_on(SimOptions options, std::uint32_t members) {
    options.steps = 100;
    job_.emplace(std::move(options));
    EXPECT_TRUE(job_->steady(1, members)) << job_->coordinator->status_json(job_->now);
    return *job_;
  }
  static std::vector<proto::NodeId> nodes(const proto::World& world) {
    std::vector<proto::NodeId> out;
    for (const proto::WorldMember& m : world.members) out.push_back(m.slot_id.node);
    return out;
  }
  // Runs until the coordinator knows of a death and has sent Revoke, which no agent has received.
  bool in_a_round(SimJob& job) {
    const auto regrouping = [&] {
      return job.coordinator->status_json(job.now).find("regrouping") != std::string::npos;
    };
    job.bury();
    while (!regrouping() && job.deliver_to_coordinator()) {
    }
    return regrouping();
  }
};

}  // namespace regroup::membership
