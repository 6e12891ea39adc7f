// A fixed-size job, as under mpirun: all members start together, and a failing one ends all.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/host_exchange.h"
#include "launcher/agent/local_node.h"
#include "launcher/job/rank_layout.h"
#include "launcher/pmi/connected_groups.h"
#include "launcher/pmi/init_watch.h"
#include "launcher/process/core_slots.h"
#include "launcher/spec/request.h"

namespace regroup::job {

struct FixedSizeOptions {
  std::vector<std::uint32_t> counts;  // members of each App; ranks go through the Apps in order
  std::vector<JobHost> hosts;
  std::vector<std::uint32_t> host_of;  // by rank; empty: all run here
  spec::Compat compat = spec::Compat::kOpenMpi;
  bool fault_tolerant = false;               // a death does not end the other members
  bool quiet = false;                        // no messages about missing MPI services
  std::optional<pmi::HelperOptions> helper;  // none: MPI programs get no services
  // The cores of each rank, then those left for MPI_Comm_spawn; empty: not bound.
  std::vector<std::vector<int>> cores;
  std::vector<pmi::Binding> bindings;  // the same as MPI reports it
  std::vector<std::uint32_t> threads;  // by rank, OMP_NUM_THREADS; empty: 1
  // By rank, of their devices; empty: they have none.
  std::vector<spec::Environment> environments = {};
  std::uint32_t most = 0;  // limit of running members, with MPI_Comm_spawn; 0: none
  base::Duration term_grace = std::chrono::seconds(5);  // for a spawned world that is ended alone
  // Serves the World of the ranks that join; empty: they join without an agent.
  std::function<std::unique_ptr<agent::MembershipJob>(agent::Agent& agent,
                                                      agent::OtherHosts* others)>
      world = {};
};

class FixedSizeJob final : public agent::AgentJob {
 public:
  // `others`: nullptr if all run on this host.
  FixedSizeJob(agent::Agent& agent, FixedSizeOptions options,
               std::unique_ptr<agent::OtherHosts> others = nullptr);
  // Members start later, when regroup-pmi is ready for them.
  [[nodiscard]] base::Status start() override;
  void on_exit(const process::MemberExit& exit) override;
  void on_notice(base::TimePoint deadline) override;
  [[nodiscard]] base::Duration still_needs() const override;
  [[nodiscard]] std::optional<int> completed() const override;
  [[nodiscard]] std::string unsaved() const override;
  [[nodiscard]] agent::OtherHosts* others() override { return others_.get(); }
  void finish(const std::function<void()>& then) override;

 private:
  struct Rank {
    pmi::ProcId process;
    std::uint32_t app = 0;
    std::uint32_t host = 0;
    bool inside = false;  // between MPI_Init and MPI_Finalize
  };
  // The members of one MPI_COMM_WORLD.
  struct World {
    std::uint32_t living = 0;                               // running or not started yet
    std::map<std::uint32_t, std::uint32_t> living_on = {};  // the same by host
    pmi::InitWatch init = pmi::InitWatch();
    pmi::ProtocolWatch protocols = {};  // of its hosts
    std::uint32_t first_app = 0;
    std::uint32_t apps = 0;
    std::uint32_t starting = 0;        // hosts that have not started their members yet
    std::optional<pmi::Spawn> parent;  // the MPI_Comm_spawn call that waits for the start
    bool ending = false;               // it is ended alone after a failure; the job continues
    std::unique_ptr<boost::asio::steady_timer> grace;
  };

  void settle_exit(const process::MemberExit& exit);
  void tell_exit(const process::MemberExit& exit);
  [[nodiscard]] agent::NodeEvents events();
  [[nodiscard]] agent::HostExchange::Job exchange_job();
  [[nodiscard]] agent::Node& node(std::uint32_t host);
  [[nodiscard]] bool several() const { return options_.hosts.size() > 1; }
  void open_space(const std::vector<std::uint32_t>& counts, std::uint32_t first_app,
                  const std::vector<std::uint32_t>& host_of, std::optional<pmi::Spawn> parent);
  // Core slots by rank; empty if members are not bound, or if a spawned world would have to share
  // cores.
  [[nodiscard]] std::vector<std::size_t> take_slots(const std::vector<process::Place>& layout);
  [[nodiscard]] agent::MemberOrder order_of(const process::Place& place,
                                            const std::vector<std::size_t>& slots) const;
  [[nodiscard]] bool crowded(std::uint32_t host) const;  // more members run there than it has cores
  [[nodiscard]] std::uint32_t living_on(std::uint32_t host) const;
  [[nodiscard]] std::vector<std::uint32_t> hosts_for(std::uint32_t members) const;
  void on_started(std::uint32_t space, const base::Status& status);
  void on_host_lost(std::size_t index, const base::Status& why);
  void on_lost(const base::Status& why);
  void on_mpi(std::uint32_t host, const pmi::Message& message);
  [[nodiscard]] std::set<std::uint32_t> known(const std::vector<std::uint32_t>& spaces) const;
  void on_groups_connected(std::uint32_t host, const std::set<std::uint32_t>& spaces);
  void on_spawn(const pmi::Spawn& spawn);
  void on_connected(const pmi::Connected& connected);
  void on_contribute(std::uint32_t host, const pmi::Contribute& part);
  // MPI_Init of `space` can never complete because of `why`.
  void end_init(std::uint32_t space, const std::string& why, int status);
  void on_aborted(const pmi::Aborted& aborted);
  [[nodiscard]] base::Result<std::vector<process::App>> spawned_apps(const pmi::Spawn& spawn,
                                                                     const Rank& parent) const;
  [[nodiscard]] std::uint32_t living() const;
  // Ends the job, or only the worlds connected to the failed one (MPI_Comm_disconnect separates
  // them). Prints `said`, the consequence, and `more`.
  void end_group(std::uint32_t space, const std::string& said, const std::string& more, int status);
  void end_alone(std::uint32_t space);
  void signal_world(std::uint32_t space, int signal);
  // Removes an ended member, and with its last member a spawned world.
  void forget(proto::MemberId member);
  [[nodiscard]] bool decides(const process::MemberExit& exit, const Rank& rank);
  void end(const process::MemberExit& exit, const Rank& rank);
  [[nodiscard]] Rank* find(pmi::ProcId process);
  [[nodiscard]] bool lives_in(std::uint32_t host, std::uint32_t space) const;

  agent::Agent& agent_;
  FixedSizeOptions options_;
  std::map<proto::MemberId, Rank> ranks_;  // ordered and not ended
  std::map<std::uint32_t, World> worlds_;  // by space
  pmi::ConnectedGroups connected_groups_;
  process::CoreSlots core_slots_;
  proto::MemberId next_member_ = 0;
  std::vector<process::App> apps_;  // by number; unused ones are empty
  std::uint32_t spaces_ = 0;        // number of spaces opened
  int status_ = 0;                  // combined status of members that ended without ending the job
  agent::LocalNode local_;
  std::unique_ptr<agent::OtherHosts> others_;
  agent::HostExchange exchange_;
  std::unique_ptr<agent::MembershipJob> world_;
  std::string unsaved_;  // reported by another host
  base::Fd exits_;       // ProcessTableOptions::exits_file, once a rank has ended
};

}  // namespace regroup::job
