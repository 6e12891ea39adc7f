// A job of N members as under mpirun: all start together, and one that fails ends them all.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/supervise/agent.h"

namespace regroup::launcher {

class RigidJob final : public AgentJob {
 public:
  // `counts`: members of each App; ranks go through the Apps in order.
  RigidJob(Agent& agent, const std::vector<std::uint32_t>& counts);
  [[nodiscard]] core::Status start() override;
  void on_exit(const MemberExit& exit) override;

 private:
  Agent& agent_;
  std::vector<Place> places_;
};

}  // namespace regroup::launcher
