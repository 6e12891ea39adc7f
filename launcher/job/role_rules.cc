// The rules follow what TensorFlow's strategies survive. Under ParameterServerStrategy the chief
// repeats the steps of a lost worker, but no other process holds the variables of a lost ps. A
// worker that all-reduces with others makes them fail, too; then each is restarted by itself, or
// all together.
#include "launcher/job/role_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/printable.h"

namespace regroup::job {
namespace {

constexpr std::uint32_t kMostDoublings = 20;

}  // namespace

RoleRules::RoleRules(std::vector<Role> roles, RestartOptions options)
    : roles_(std::move(roles)), options_(options) {
  for (const Task& task : tasks_of(roles_)) members_.push_back({task});
  for (const Role& role : roles_) {
    has_chief_ |= kind_of(role) == RoleKind::kChief;
    has_server_ |= kind_of(role) == RoleKind::kServer;
    has_worker_ |= kind_of(role) == RoleKind::kWorker;
  }
}

std::vector<RoleAction> RoleRules::start() const {
  std::vector<RoleAction> out;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) out.emplace_back(StartMember{rank});
  return out;
}

std::vector<RoleAction> RoleRules::on_end(const MemberEnd& end) {
  if (ended_) return {};
  if (!stopping_) return end.status == 0 ? on_success(end.rank) : on_failure(end);
  std::vector<RoleAction> out;
  members_[end.rank].state = State::kWaits;
  when_stopped(out);
  return out;
}

bool is_own_fault(int signal) {
  constexpr std::array kFaults = {SIGABRT, SIGBUS,  SIGFPE, SIGILL,
                                  SIGPIPE, SIGSEGV, SIGSYS, SIGTRAP};
  return std::ranges::find(kFaults, signal) != kFaults.end();
}

bool RoleRules::may_follow_another(const MemberEnd& end) const {
  if (ended_ || stopping_ || end.status == 0 || end.mpi != MemberEnd::Mpi::kInside || end.killed)
    return false;
  return std::ranges::any_of(members_, [&](const Member& member) {
    return &member != &members_[end.rank] && member.state == State::kRuns;
  });
}

std::vector<RoleAction> RoleRules::on_due(std::uint32_t rank) {
  Member& member = members_[rank];
  if (ended_ || stopping_ || member.state != State::kWaits) return {};
  member.state = State::kRuns;
  return {StartMember{rank, restarts_of(member)}};
}

std::string RoleRules::name_of(std::uint32_t rank) const {
  return fmt::format("rank {} ({})", rank, task_name(roles_, members_[rank].task));
}

bool RoleRules::awaited(const Member& member) const {
  switch (kind_of(role_of(member))) {
    case RoleKind::kChief:
      return true;
    case RoleKind::kWorker:
      return !has_chief_ || !has_server_;
    default:
      return !has_chief_ && !has_worker_;
  }
}

bool RoleRules::over() const {
  return std::none_of(members_.begin(), members_.end(), [this](const Member& member) {
    return awaited(member) && (member.state == State::kRuns || member.state == State::kWaits);
  });
}

std::uint32_t RoleRules::restarts_of(const Member& member) const {
  return job_restarts_ + member.restarts;
}

std::uint32_t RoleRules::count(const Member& like, State state) const {
  return static_cast<std::uint32_t>(
      std::count_if(members_.begin(), members_.end(), [&](const Member& member) {
        return member.task.role == like.task.role && member.state == state;
      }));
}

base::Duration RoleRules::back_off(std::uint32_t restarts) const {
  if (restarts < 2) return base::Duration::zero();
  return std::min(options_.back_off * (1U << std::min(restarts - 2, kMostDoublings)),
                  options_.longest_back_off);
}

bool RoleRules::restarts_job(const MemberEnd& end) const {
  const Member& member = members_[end.rank];
  if (end.mpi != MemberEnd::Mpi::kNever && replaceable(member)) return true;
  if (!options_.whole_job) return false;
  switch (kind_of(role_of(member))) {
    case RoleKind::kEvaluator:
      return false;
    case RoleKind::kWorker:
      return !has_server_;
    default:
      return true;
  }
}

bool RoleRules::replaceable(const Member& member) const {
  const RoleKind kind = kind_of(role_of(member));
  return kind == RoleKind::kWorker || kind == RoleKind::kEvaluator;
}

std::vector<RoleAction> RoleRules::on_success(std::uint32_t rank) {
  Member& member = members_[rank];
  member.state = State::kSucceeded;
  const std::uint32_t enough = role_of(member).min_succeeded;
  if (!over() && (enough == 0 || count(member, State::kSucceeded) < enough)) return {};
  ended_ = true;
  return {EndJob{0}};
}

std::vector<RoleAction> RoleRules::on_failure(const MemberEnd& end) {
  const Member& member = members_[end.rank];
  if (restarts_job(end)) {
    if (job_restarts_ < options_.max_restarts) return restart_job(end);
  } else if (replaceable(member) && member.restarts < options_.max_restarts) {
    return restart_member(end);
  }
  return fail_member(end);
}

std::vector<RoleAction> RoleRules::restart_member(const MemberEnd& end) {
  Member& member = members_[end.rank];
  ++member.restarts;
  const base::Duration after = back_off(member.restarts);
  const std::string when =
      after > base::Duration::zero()
          ? fmt::format(" in {:g} s", std::chrono::duration<double>(after).count())
          : "";
  std::vector<RoleAction> out{
      Tell{fmt::format("{} {}: restarting it{} (restart {} of {})", name_of(end.rank), end.what,
                       when, member.restarts, options_.max_restarts)}};
  start_after_back_off(end.rank, member.restarts, out);
  return out;
}

std::vector<RoleAction> RoleRules::restart_job(const MemberEnd& end) {
  ++job_restarts_;
  stopping_ = true;
  members_[end.rank].state = State::kWaits;
  std::vector<RoleAction> out{
      Tell{fmt::format(
          "{} {}: {}restarting the whole job (restart {} of {})", name_of(end.rank), end.what,
          end.mpi == MemberEnd::Mpi::kNever ? "" : "no process can replace it in MPI_COMM_WORLD: ",
          job_restarts_, options_.max_restarts)},
      StopMembers{}};
  when_stopped(out);
  return out;
}

std::vector<RoleAction> RoleRules::fail_member(const MemberEnd& end) {
  Member& member = members_[end.rank];
  member.state = State::kFailed;
  const std::uint32_t most = role_of(member).min_failed;
  const std::string so =
      fmt::format("{} {}{}", name_of(end.rank), end.what,
                  member.restarts > 0 ? " after " + base::counted(member.restarts, "restart") : "");
  if (end.mpi != MemberEnd::Mpi::kInside && (most == 0 || count(member, State::kFailed) < most)) {
    std::vector<RoleAction> out{Tell{so + ": continuing without it"}};
    if (over()) out.emplace_back(EndJob{0});
    ended_ = over();
    return out;
  }
  ended_ = true;
  return {Tell{so + ": ending the job"}, EndJob{end.status}};
}

void RoleRules::when_stopped(std::vector<RoleAction>& out) {
  const auto runs = [](const Member& member) { return member.state == State::kRuns; };
  if (std::any_of(members_.begin(), members_.end(), runs)) return;
  stopping_ = false;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    members_[rank].restarts = 0;
    start_after_back_off(rank, job_restarts_, out);
  }
}

void RoleRules::start_after_back_off(std::uint32_t rank, std::uint32_t restarts,
                                     std::vector<RoleAction>& out) {
  Member& member = members_[rank];
  const base::Duration after = back_off(restarts);
  member.state = after > base::Duration::zero() ? State::kWaits : State::kRuns;
  if (member.state == State::kWaits) {
    out.emplace_back(StartLater{rank, after});
  } else {
    out.emplace_back(StartMember{rank, restarts_of(member)});
  }
}

}  // namespace regroup::job
