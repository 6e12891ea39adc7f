// A job of roles: carries out what RoleRules decides, and tells each member its cluster.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/roles/port_pool.h"
#include "launcher/roles/role_rules.h"
#include "launcher/roles/role_world.h"
#include "launcher/supervise/agent.h"

namespace regroup::launcher {

struct RoleJobOptions {
  std::string name;         // PAI_JOB_NAME
  std::vector<Role> roles;  // role i runs app i
  RestartOptions restart;
  core::Duration term_grace = std::chrono::seconds(5);  // of members when the whole job starts again
  std::vector<std::vector<int>> cores;       // by rank, that members are bound to; empty: they are not bound
  std::vector<pmi::Binding> bindings;        // the same for MPI
  std::uint32_t slots = 0;                   // cores there are for them; 0: not known
  bool quiet = false;                        // nothing is said of what MPI programs lack
  std::optional<pmi::HelperOptions> helper;  // none: MPI programs get no services
};

// Used by the loop's thread.
class RoleJob final : public AgentJob {
 public:
  RoleJob(Agent& agent, RoleJobOptions options);
  // Holds the ports. Members start a little later, when regroup-pmi is ready for them.
  [[nodiscard]] core::Status start() override;
  void on_exit(const MemberExit& exit) override;

 private:
  void perform(const std::vector<RoleAction>& actions);
  void perform_one(const StartMember& action);
  void perform_one(const StartLater& action);
  void perform_one(const StopMembers& action);
  void perform_one(const EndJob& action);
  void perform_one(const Tell& action);
  [[nodiscard]] RoleWorld::Options world_options() const;
  [[nodiscard]] MemberEnd end_of(const MemberExit& exit) const;
  void start_member(const StartMember& start, Extras extras);

  Agent& agent_;
  RoleJobOptions options_;
  RoleRules rules_;
  std::vector<Task> tasks_;  // by rank
  PortPool ports_;
  Cluster cluster_;
  std::map<std::uint32_t, boost::asio::steady_timer> back_off_;  // by rank
  RoleWorld world_;
  boost::asio::steady_timer grace_;
  bool stopping_ = false;  // members have been asked to end, so that the whole job can start again
};

}  // namespace regroup::launcher
