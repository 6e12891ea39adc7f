// The members of a job of roles on their hosts: one MPI_COMM_WORLD over all of them, a new one each
// time the whole job starts.
#pragma once

#include <utility>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/host_exchange.h"
#include "launcher/agent/node.h"
#include "launcher/job/rank_layout.h"
#include "launcher/job/role_rules.h"
#include "launcher/pmi/init_watch.h"

namespace regroup::job {

// Used by the loop's thread.
class RoleWorld {
 public:
  struct Options {
    std::vector<std::uint32_t> counts;   // members of each role
    std::vector<JobHost> hosts;          // of the job, at least one
    std::vector<std::uint32_t> host_of;  // by rank; empty: all are on the first
    std::vector<pmi::Binding> bindings;  // by rank; empty: nobody is bound
  };
  struct Events {
    std::function<void(const std::string&)> said;                    // for the user
    std::function<agent::MemberOrder(const StartMember&)> order_of;  // without its place
    std::function<void(std::uint32_t rank)> aborted;  // called MPI_Abort, and may wait for its end
    std::function<void(const base::Status&)> failed;  // a member could not be started, or go on
    std::function<void(const std::string& why)> init_stuck;  // MPI_Init cannot complete
  };
  // `node_of`: of Options::hosts; what they tell comes through on_started() and on_mpi().
  RoleWorld(Options options, std::function<agent::Node&(std::uint32_t host)> node_of,
            Events events);

  // The member starts, or the first time in a world all do, once that is wanted of all; unless
  // renew() comes first.
  void start(const StartMember& start);
  // The world is over, and the next start() begins another; the ranks that will not be started any
  // more.
  [[nodiscard]] std::vector<std::uint32_t> renew();
  // Of the member that was started last as `rank`.
  [[nodiscard]] MemberEnd::Mpi standing(std::uint32_t rank) const {
    return members_.at(rank).standing;
  }
  [[nodiscard]] const std::optional<pmi::Aborted>& abort_of(std::uint32_t rank) const {
    return members_.at(rank).abort;
  }
  // The member's next start, and all later ones, are on the first host, without MPI services. Its
  // host is lost or ends.
  void move_to_first(std::uint32_t rank);
  [[nodiscard]] std::uint32_t host_of(std::uint32_t rank) const {
    return host_of_.empty() ? 0 : host_of_.at(rank);
  }
  [[nodiscard]] bool has_moved(std::uint32_t rank) const {
    return !host_of_.empty() && host_of_.at(rank) != options_.host_of.at(rank);
  }
  // Whether a member has called MPI_Init.
  [[nodiscard]] bool uses_mpi() const;
  // The member's process has been started, and has not ended.
  [[nodiscard]] bool runs(std::uint32_t rank) const { return members_.at(rank).runs; }
  // The member has ended.
  void gone(std::uint32_t rank);
  // The member has ended as `how` says, and is not started again in this world.
  void left(std::uint32_t rank, const std::string& how);
  void signal(std::uint32_t rank, int signal) { node_of_(host_of(rank)).signal(rank, signal); }
  void signal_all(int signal);

  // As InitWatch::waits(), of the present world.
  [[nodiscard]] std::optional<std::string> waits_in_init() const {
    return init_.waits(static_cast<std::uint32_t>(members_.size()));
  }

  void on_started(std::uint32_t space, const base::Status& status);
  void on_mpi(std::uint32_t host, const pmi::Message& message);

 private:
  struct Member {
    MemberEnd::Mpi standing = MemberEnd::Mpi::kNever;
    std::optional<pmi::Aborted> abort;
    std::optional<StartMember> waiting;  // for the others
    std::uint32_t space = 0;             // that it was started in
    bool runs = false;
  };

  [[nodiscard]] agent::HostExchange::Job exchange_job();
  [[nodiscard]] pmi::OpenSpace space_on(std::uint32_t host) const;
  [[nodiscard]] agent::MemberOrder order(std::uint32_t rank, const StartMember& start);
  void stands(pmi::ProcId process, MemberEnd::Mpi standing);
  void open();

  const Options options_;
  const std::function<agent::Node&(std::uint32_t)> node_of_;
  const Events events_;
  std::vector<std::uint32_t> host_of_;  // by rank; differs from Options::host_of for moved members
  std::vector<process::Place> places_;  // by rank
  std::vector<Member> members_;         // by rank
  agent::HostExchange exchange_;
  pmi::InitWatch init_;
  std::uint32_t space_ = 0;
  bool opened_ = false;
};

}  // namespace regroup::job
