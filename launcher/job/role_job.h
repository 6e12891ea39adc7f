// A job of roles: performs the actions of RoleRules and gives each member the variables of its
// cluster.
#pragma once

#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/agent/local_node.h"
#include "launcher/job/job_requests.h"
#include "launcher/job/parameter_server.h"
#include "launcher/job/port_pool.h"
#include "launcher/job/role_rules.h"
#include "launcher/job/role_world.h"
#include "launcher/job/stores.h"

namespace regroup::job {

struct RoleJobOptions {
  std::string name;         // PAI_JOB_NAME
  std::vector<Role> roles;  // role i runs app i
  RestartOptions restart;
  // Of members when the whole job starts again.
  base::Duration term_grace = std::chrono::seconds(5);
  // By rank, that members are bound to; empty: they are not bound.
  std::vector<std::vector<int>> cores;
  std::vector<pmi::Binding> bindings;           // the same for MPI
  std::vector<spec::Environment> environments;  // by rank, of their devices; empty: they have none
  std::vector<JobHost> hosts;                   // of the job, this one first
  std::vector<std::uint32_t> host_of;           // by rank; empty: all run here
  std::vector<MemberPorts> ports;      // by rank, held on their hosts; empty: they are held here
  std::uint16_t coordinator_port = 0;  // the same, of Cluster
  std::string kill_socket;             // of job_requests.h; "": nowhere
  bool quiet = false;                  // nothing is said of what MPI programs lack
  std::optional<pmi::HelperOptions> helper;                // none: MPI programs get no services
  std::optional<ParameterServerOptions> parameter_server;  // of --ps-memory
  std::vector<OtherStore> other_stores;      // of --ps-hosts, on the first other hosts
  std::vector<std::string> store_addresses;  // of the hosts that have stores, this one first
  std::size_t replicas = 1;                  // of each range, in as many of the stores
};

// Used by the loop's thread.
class RoleJob final : public agent::AgentJob {
 public:
  // `others`: none if all run on this host. `held`: of this host, while the job lives.
  RoleJob(agent::Agent& agent, RoleJobOptions options,
          std::unique_ptr<agent::OtherHosts> others = nullptr, HeldPorts held = {});
  // Holds the ports. Members start a little later, when regroup-pmi is ready for them.
  [[nodiscard]] base::Status start() override;
  void on_exit(const process::MemberExit& exit) override;
  [[nodiscard]] agent::OtherHosts* others() override { return others_.get(); }
  void finish(const std::function<void()>& then) override;
  [[nodiscard]] base::Duration still_needs() const override;
  [[nodiscard]] std::string unsaved() const override;

 private:
  void perform(const std::vector<RoleAction>& actions);
  void perform_one(const StartMember& action);
  void perform_one(const StartLater& action);
  void perform_one(const StopMembers& action);
  void perform_one(const EndJob& action);
  void perform_one(const Tell& action);
  [[nodiscard]] agent::NodeEvents node_events();
  [[nodiscard]] RoleWorld::Options world_options() const;
  [[nodiscard]] RoleWorld::Events world_events();
  [[nodiscard]] base::Status hold_here();
  [[nodiscard]] base::Status start_parameter_server();
  void start_other_stores();
  // Once all stores have their tables.
  void start_members();
  // The hosts that have a store.
  [[nodiscard]] std::size_t stores() const {
    return parameter_server_ ? options_.other_stores.size() + 1 : 0;
  }
  [[nodiscard]] std::string stores_of(std::uint32_t rank) const;
  // Of the parameter server's tables; null: there are none.
  [[nodiscard]] TableCheckpoints* checkpoints() const {
    return parameter_server_ ? parameter_server_->checkpoints() : nullptr;
  }
  [[nodiscard]] MemberEnd end_of(const process::MemberExit& exit) const;
  [[nodiscard]] agent::MemberOrder order_of(const StartMember& start) const;
  [[nodiscard]] base::Result<std::string> kill(const std::string& member);
  void hold_back(const MemberEnd& end);
  void give_held_back();
  void watch_init();
  void on_init_stuck(const std::string& why);
  void on_failed_start(const base::Status& why);
  void on_lost(std::size_t host, const base::Status& why);
  void on_stores_started(const base::Status& status);
  void on_store_failed(std::size_t store, const std::string& why);
  [[nodiscard]] bool goes_on_without(std::size_t store, const std::string& why);
  [[nodiscard]] std::string hosts_of(const std::vector<std::size_t>& stores) const;
  [[nodiscard]] std::vector<std::uint32_t> members_on(std::size_t host) const;
  [[nodiscard]] base::Status move_here(std::uint32_t rank);
  void end_members_of(std::size_t host);

  agent::Agent& agent_;
  RoleJobOptions options_;
  RoleRules rules_;
  std::vector<Task> tasks_;  // by rank
  HeldPorts held_;
  Cluster cluster_;
  std::map<std::uint32_t, boost::asio::steady_timer> back_off_;  // by rank
  std::vector<MemberEnd> held_back_;  // which may follow ends that are not heard of yet
  boost::asio::steady_timer news_;
  agent::LocalNode local_;
  std::unique_ptr<agent::OtherHosts> others_;
  RoleWorld world_;
  std::unique_ptr<ParameterServer> parameter_server_;  // null: there is none
  std::unique_ptr<OtherStores> other_stores_;          // null: there are none
  boost::asio::steady_timer grace_;
  std::vector<HeldPorts> held_for_moved_;
  std::map<std::uint32_t, std::size_t> leaves_;  // members that run yet, and their hosts, which end
  boost::asio::steady_timer init_news_;
  bool init_watched_ = false;  // a member has called MPI_Init, and init_news_ runs or has run
  JobRequests kills_;
  bool stopping_ = false;  // members have been asked to end, so that the whole job can start again
};

}  // namespace regroup::job
