// A job of N members as under mpirun: all start together, and one that fails ends them all.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/options/request.h"
#include "launcher/pmi/families.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/core_slots.h"
#include "launcher/supervise/host_exchange.h"
#include "launcher/supervise/local_node.h"
#include "launcher/supervise/rank_layout.h"

namespace regroup::launcher {

struct RigidOptions {
  std::vector<std::uint32_t> counts;  // members of each App; ranks go through the Apps in order
  std::vector<JobHost> hosts;
  std::vector<std::uint32_t> host_of;  // by rank; empty: all run here
  Compat compat = Compat::kOpenMpi;
  bool fault_tolerant = false;               // a death does not end the other members
  bool quiet = false;                        // nothing is said of what MPI programs lack
  std::optional<pmi::HelperOptions> helper;  // none: MPI programs get no services
  // By rank, that members are bound to, then those that are left for MPI_Comm_spawn; empty: they are not
  // bound.
  std::vector<std::vector<int>> cores;
  std::vector<pmi::Binding> bindings;          // the same for MPI
  std::vector<std::uint32_t> threads;          // by rank, OMP_NUM_THREADS; empty: 1
  std::vector<Environment> environments = {};  // by rank, of their devices; empty: they have none
  std::uint32_t most = 0;                      // that may live at once, with MPI_Comm_spawn; 0: any number
  core::Duration term_grace = std::chrono::seconds(5);  // of a spawned world that ends alone
  // Serves the World of the ranks that join; none: they meet without an agent.
  std::function<std::unique_ptr<MembershipJob>(Agent& agent, OtherHosts* others)> world = {};
};

class RigidJob final : public AgentJob {
 public:
  // `others`: none if all run on this host.
  RigidJob(Agent& agent, RigidOptions options, std::unique_ptr<OtherHosts> others = nullptr);
  // Members start a little later, when regroup-pmi is ready for them.
  [[nodiscard]] core::Status start() override;
  void on_exit(const MemberExit& exit) override;
  void on_notice(core::TimePoint deadline) override;
  [[nodiscard]] core::Duration still_needs() const override;
  [[nodiscard]] std::optional<int> completed() const override;
  [[nodiscard]] std::string unsaved() const override;
  [[nodiscard]] OtherHosts* others() override { return others_.get(); }
  void finish(const std::function<void()>& then) override;

 private:
  struct Rank {
    pmi::Seat seat;
    std::uint32_t app = 0;
    std::uint32_t host = 0;
    bool inside = false;  // between MPI_Init and MPI_Finalize
  };
  // Of members with one MPI_COMM_WORLD.
  struct World {
    std::uint32_t living = 0;                               // or yet to be started
    std::map<std::uint32_t, std::uint32_t> living_on = {};  // of them, by host
    std::uint32_t first_app = 0;
    std::uint32_t apps = 0;
    std::uint32_t starting = 0;        // hosts that have not started theirs yet
    std::optional<pmi::Spawn> parent;  // who waits for it to be started
    bool ending = false;               // alone, for a failure in it; the job goes on
    std::unique_ptr<boost::asio::steady_timer> grace;
  };

  void settle_exit(const MemberExit& exit);
  void tell_exit(const MemberExit& exit) const;
  [[nodiscard]] NodeEvents events();
  [[nodiscard]] HostExchange::Job exchange_job();
  [[nodiscard]] Node& node(std::uint32_t host);
  [[nodiscard]] bool several() const { return options_.hosts.size() > 1; }
  void open_space(const std::vector<std::uint32_t>& counts, std::uint32_t first_app,
                  const std::vector<std::uint32_t>& host_of, std::optional<pmi::Spawn> parent);
  // By rank; none if nobody is bound, or if a spawned world would have to share.
  [[nodiscard]] std::vector<std::size_t> take_slots(const std::vector<Place>& layout);
  [[nodiscard]] MemberOrder order_of(const Place& place, const std::vector<std::size_t>& slots) const;
  [[nodiscard]] bool crowded(std::uint32_t host) const;  // more members than cores
  [[nodiscard]] std::uint32_t living_on(std::uint32_t host) const;
  [[nodiscard]] std::vector<std::uint32_t> hosts_for(std::uint32_t members) const;
  void on_started(std::uint32_t space, const core::Status& status);
  void on_host_lost(std::size_t index, const core::Status& why);
  void on_lost(const core::Status& why);
  void on_mpi(std::uint32_t host, const pmi::Message& message);
  [[nodiscard]] std::set<std::uint32_t> known(const std::vector<std::uint32_t>& spaces) const;
  void on_met(std::uint32_t host, const std::set<std::uint32_t>& spaces);
  void on_spawn(const pmi::Spawn& spawn);
  void on_aborted(const pmi::Aborted& aborted);
  [[nodiscard]] core::Result<std::vector<App>> spawned_apps(const pmi::Spawn& spawn,
                                                            const Rank& parent) const;
  [[nodiscard]] std::uint32_t living() const;
  // Ends the job, or only the worlds that the failed one has not disconnected from. Says `said`, what follows
  // from it, and `more`.
  void end_family(std::uint32_t space, const std::string& said, const std::string& more, int status);
  void end_alone(std::uint32_t space);
  void signal_world(std::uint32_t space, int signal);
  // The member has ended; with its last one a spawned world is forgotten.
  void forget(core::MemberId member);
  [[nodiscard]] bool decides(const MemberExit& exit, const Rank& rank);
  void end(const MemberExit& exit, const Rank& rank);
  [[nodiscard]] Rank* find(pmi::Seat seat);
  [[nodiscard]] bool lives_in(std::uint32_t host, std::uint32_t space) const;

  Agent& agent_;
  RigidOptions options_;
  std::map<core::MemberId, Rank> ranks_;   // ordered, and not ended
  std::map<std::uint32_t, World> worlds_;  // by space
  pmi::Families families_;
  CoreSlots core_slots_;
  core::MemberId next_member_ = 0;
  std::vector<App> apps_;     // by number; those that nobody runs any more are empty
  std::uint32_t spaces_ = 0;  // opened
  int status_ = 0;            // of those that ended without ending the job
  LocalNode local_;
  std::unique_ptr<OtherHosts> others_;
  HostExchange exchange_;
  std::unique_ptr<MembershipJob> world_;
  std::string unsaved_;  // of another host
};

}  // namespace regroup::launcher
