// A job of N members as under mpirun: all start together, and one that fails ends them all.
#pragma once

#include "launcher/supervise/agent.h"

namespace regroup::launcher {

class RigidJob final : public AgentJob {
 public:
  RigidJob(Agent& agent, std::uint32_t members) : agent_(agent), members_(members) {}
  [[nodiscard]] core::Status start() override;
  void on_exit(const MemberExit& exit) override;

 private:
  Agent& agent_;
  std::uint32_t members_;
};

}  // namespace regroup::launcher
