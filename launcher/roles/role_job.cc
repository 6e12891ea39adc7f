// The agent's side of a job of roles.
#include "launcher/roles/role_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <variant>

namespace regroup::launcher {

RoleJob::RoleJob(Agent& agent, RoleJobOptions options)
    : agent_(agent),
      options_(std::move(options)),
      rules_(options_.roles, options_.restart),
      tasks_(tasks_of(options_.roles)),
      world_(agent.loop(), world_options(), agent.crew().options().apps.at(0),
             {[this](const std::string& text) {
                if (!agent_.ending() && !options_.quiet) agent_.say(text);
              },
              [this](const StartMember& start, Extras extras) { start_member(start, std::move(extras)); },
              [this](std::uint32_t rank) { agent_.crew().signal(rank, SIGKILL); }}),
      grace_(agent.loop()) {}

core::Status RoleJob::start() {
  auto ports = hold_ports(options_.roles);
  if (!ports.ok()) return ports.status();
  ports_ = std::move(*ports);
  cluster_ = {options_.name, options_.roles, ports_.members, ports_.coordinator_port};
  perform(rules_.start());
  return {};
}

RoleWorld::Options RoleJob::world_options() const {
  RoleWorld::Options world{options_.helper, {}, options_.slots, options_.bindings};
  for (const Role& role : options_.roles) world.counts.push_back(role.count);
  return world;
}

void RoleJob::on_exit(const MemberExit& exit) {
  if (agent_.ending()) return;
  world_.settle();
  world_.gone(exit.rank);
  perform(rules_.on_end(end_of(exit)));
}

// To leave without MPI_Finalize is a failure, as under mpirun: the others wait for it.
MemberEnd RoleJob::end_of(const MemberExit& exit) const {
  MemberEnd end{exit.rank, exit.status(), fmt::format("(pid {}) {}", exit.pid, exit.what()),
                world_.standing(exit.rank)};
  if (const auto& abort = world_.abort_of(exit.rank)) {
    end.status = std::max(1, abort->status & 0xff);
    end.what = fmt::format("(pid {}) called MPI_Abort with status {}{}{}", exit.pid, abort->status,
                           abort->message.empty() ? "" : ": ", abort->message);
    return end;
  }
  if (end.mpi != MemberEnd::Mpi::kInside || exit.signal != 0) return end;
  end.what += " before it called MPI_Finalize";
  if (end.status == 0) end.status = 1;
  return end;
}

void RoleJob::perform(const std::vector<RoleAction>& actions) {
  for (const RoleAction& action : actions) {
    std::visit([this](const auto& one) { perform_one(one); }, action);
  }
}

void RoleJob::perform_one(const StartMember& action) {
  stopping_ = false;
  if (!agent_.ending()) world_.start(action);
}

void RoleJob::perform_one(const StartLater& action) {
  stopping_ = false;
  auto& timer = back_off_.try_emplace(action.rank, agent_.loop()).first->second;
  timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(action.after));
  timer.async_wait([this, rank = action.rank](const boost::system::error_code& error) {
    if (!error && !agent_.ending()) perform(rules_.on_due(rank));
  });
}

void RoleJob::perform_one(const StopMembers&) {
  stopping_ = true;
  agent_.crew().signal_all(SIGTERM);
  agent_.crew().signal_all(SIGCONT);  // a stopped member sees SIGTERM only then
  grace_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.term_grace));
  grace_.async_wait([this](const boost::system::error_code& error) {
    if (!error && stopping_) agent_.crew().signal_all(SIGKILL);
  });
  for (const std::uint32_t rank : world_.renew()) perform(rules_.on_end({rank, 1, "was not started"}));
}

void RoleJob::perform_one(const EndJob& action) { agent_.terminate(action.status); }

void RoleJob::perform_one(const Tell& action) { agent_.say(action.text); }

void RoleJob::start_member(const StartMember& start, Extras extras) {
  if (agent_.ending()) return;
  const auto& [role, index] = tasks_[start.rank];
  extras.environment.merge(cluster_environment(cluster_, start.rank));
  extras.environment["REGROUP_RESTART_COUNT"] = std::to_string(start.restarts);
  if (start.rank < options_.cores.size()) extras.cores = options_.cores[start.rank];
  const auto size = static_cast<std::uint32_t>(tasks_.size());
  const core::Status status = agent_.crew().start(
      {start.rank, start.rank, size, static_cast<std::uint32_t>(role), index}, std::move(extras));
  if (start.rank + 1 == size) agent_.release_port();
  if (status.ok()) return;
  agent_.fail_start(fmt::format("rank {} ({}) could not be started: {}", start.rank,
                                task_name(options_.roles, tasks_[start.rank]), status.message()));
}

}  // namespace regroup::launcher
