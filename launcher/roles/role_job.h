// A job of roles: carries out what RoleRules decides, and tells each member its cluster.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/roles/port_pool.h"
#include "launcher/roles/role_rules.h"
#include "launcher/supervise/agent.h"

namespace regroup::launcher {

struct RoleJobOptions {
  std::string name;         // PAI_JOB_NAME
  std::vector<Role> roles;  // role i runs app i
  RestartOptions restart;
  core::Duration term_grace = std::chrono::seconds(5);  // of members when the whole job starts again
  std::vector<std::vector<int>> cores;  // by rank, that members are bound to; empty: they are not bound
};

// Used by the loop's thread.
class RoleJob final : public AgentJob {
 public:
  RoleJob(Agent& agent, RoleJobOptions options);
  // Holds the ports and starts everybody.
  [[nodiscard]] core::Status start() override;
  void on_exit(const MemberExit& exit) override;

 private:
  void perform(const std::vector<RoleAction>& actions);
  void perform_one(const StartMember& action);
  void perform_one(const StartLater& action);
  void perform_one(const StopMembers& action);
  void perform_one(const EndJob& action);
  void perform_one(const Tell& action);
  [[nodiscard]] core::Status start_member(const StartMember& start);

  Agent& agent_;
  RoleJobOptions options_;
  RoleRules rules_;
  std::vector<Task> tasks_;  // by rank
  PortPool ports_;
  Cluster cluster_;
  std::map<std::uint32_t, boost::asio::steady_timer> back_off_;  // by rank
  boost::asio::steady_timer grace_;
  bool stopping_ = false;  // members have been asked to end, so that the whole job can start again
};

}  // namespace regroup::launcher
