// Decides when a member of a cluster dies whether to restart it, to restart the whole job, or to
// end the job. Pure: ends of processes in, actions out, which RoleJob (role_job.h) performs.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "launcher/job/cluster_spec.h"

namespace regroup::job {

// A dead worker or evaluator is restarted, a dead chief or ps ends the job.
struct RestartOptions {
  // A dead chief or ps, or without any ps a dead worker, restarts the whole job
  // (--restart-policy=restart).
  bool whole_job = false;
  std::uint32_t max_restarts = 3;  // of each member, and of the whole job; 0: no restarts
  // Before the second restart; doubles; the first is at once.
  base::Duration back_off = std::chrono::seconds(1);
  base::Duration longest_back_off = std::chrono::seconds(30);
};

// How a member's process ended.
struct MemberEnd {
  std::uint32_t rank = 0;
  int status = 0;    // 0: it ended well
  std::string what;  // "(pid 12) exited with code 7"
  // Its state in MPI_COMM_WORLD, which admits no new member and waits for all members that have
  // called MPI_Init.
  enum class Mpi : std::uint8_t { kNever, kInside, kLeft } mpi = Mpi::kNever;
  // By a signal from outside, so that no other member's end is its cause.
  bool killed = false;
};

// Whether a process that ends by this signal may have failed because it lost its peer in MPI: MPICH
// over UCX then ends by SIGSEGV or SIGABRT. 0: no signal.
[[nodiscard]] bool is_own_fault(int signal);

struct StartMember {
  std::uint32_t rank = 0;
  std::uint32_t restarts = 0;  // before this start
  bool operator==(const StartMember&) const = default;
};
struct StartLater {  // call on_due(rank) when the time is over; a later one for the same rank
                     // replaces it
  std::uint32_t rank = 0;
  base::Duration after{};
  bool operator==(const StartLater&) const = default;
};
struct StopMembers {  // end all members that run
  bool operator==(const StopMembers&) const = default;
};
struct EndJob {
  int status = 0;
  bool operator==(const EndJob&) const = default;
};
struct Tell {
  std::string text;
  bool operator==(const Tell&) const = default;
};
using RoleAction = std::variant<StartMember, StartLater, StopMembers, EndJob, Tell>;

// The job is over with status 0 when the chief has ended with status 0 and there is a ps (whose
// servers and workers never return); without a ps, when all chiefs and workers have; without a
// chief, when all workers have; without either, when all members have; or when Role::min_succeeded
// members of a role have. It fails with the status of the member whose end decided it, when
// Role::min_failed members of its role have failed for good, or one of them inside MPI. A member
// that has called MPI_Init is not replaced alone: the whole job is restarted.
class RoleRules {
 public:
  RoleRules(std::vector<Role> roles, RestartOptions options);

  // The first starts. Call once, before on_end().
  [[nodiscard]] std::vector<RoleAction> start() const;
  // `end.rank` was running. Nothing follows EndJob.
  [[nodiscard]] std::vector<RoleAction> on_end(const MemberEnd& end);
  // True: this member may have failed in MPI because of another one whose end is not reported yet.
  [[nodiscard]] bool may_follow_another(const MemberEnd& end) const;
  // True: this member has ended, and is not started again unless the whole job is.
  [[nodiscard]] bool is_final(std::uint32_t rank) const {
    const State state = members_[rank].state;
    return state == State::kSucceeded || state == State::kFailed;
  }
  [[nodiscard]] bool runs(std::uint32_t rank) const { return members_[rank].state == State::kRuns; }
  // The back-off of `rank` is over.
  [[nodiscard]] std::vector<RoleAction> on_due(std::uint32_t rank);

 private:
  enum class State : std::uint8_t {
    kRuns,
    kWaits,
    kSucceeded,
    kFailed
  };  // kWaits: for its next start
  struct Member {
    Task task;
    State state = State::kRuns;
    std::uint32_t restarts = 0;
  };

  [[nodiscard]] const Role& role_of(const Member& member) const { return roles_[member.task.role]; }
  [[nodiscard]] std::string name_of(std::uint32_t rank) const;
  [[nodiscard]] bool awaited(const Member& member) const;
  [[nodiscard]] bool over() const;
  [[nodiscard]] std::uint32_t restarts_of(const Member& member) const;
  [[nodiscard]] std::uint32_t count(const Member& like, State state) const;
  [[nodiscard]] base::Duration back_off(std::uint32_t restarts) const;
  [[nodiscard]] bool replaceable(const Member& member) const;
  [[nodiscard]] bool restarts_job(const MemberEnd& end) const;

  std::vector<RoleAction> on_success(std::uint32_t rank);
  std::vector<RoleAction> on_failure(const MemberEnd& end);
  std::vector<RoleAction> restart_member(const MemberEnd& end);
  std::vector<RoleAction> restart_job(const MemberEnd& end);
  std::vector<RoleAction> fail_member(const MemberEnd& end);
  void when_stopped(std::vector<RoleAction>& out);
  void start_after_back_off(std::uint32_t rank, std::uint32_t restarts,
                            std::vector<RoleAction>& out);

  std::vector<Role> roles_;
  RestartOptions options_;
  bool has_chief_ = false;
  bool has_server_ = false;
  bool has_worker_ = false;
  std::vector<Member> members_;  // by rank
  std::uint32_t job_restarts_ = 0;
  bool stopping_ = false;  // the whole job restarts once all members have ended
  bool ended_ = false;
};

}  // namespace regroup::job
