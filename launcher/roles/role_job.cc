// The agent's side of a job of roles.
#include "launcher/roles/role_job.h"

#include <fmt/format.h>

#include <csignal>
#include <variant>

namespace regroup::launcher {

RoleJob::RoleJob(Agent& agent, RoleJobOptions options)
    : agent_(agent),
      options_(std::move(options)),
      rules_(options_.roles, options_.restart),
      tasks_(tasks_of(options_.roles)),
      grace_(agent.loop()) {}

core::Status RoleJob::start() {
  auto ports = hold_ports(options_.roles);
  if (!ports.ok()) return ports.status();
  ports_ = std::move(*ports);
  cluster_ = {options_.name, options_.roles, ports_.members, ports_.coordinator_port};
  for (const RoleAction& action : rules_.start()) {
    REGROUP_RETURN_IF_ERROR(start_member(std::get<StartMember>(action)));
  }
  agent_.release_port();
  return {};
}

void RoleJob::on_exit(const MemberExit& exit) {
  if (agent_.ending()) return;
  perform(rules_.on_end({exit.rank, exit.status(), fmt::format("(pid {}) {}", exit.pid, exit.what())}));
}

void RoleJob::perform(const std::vector<RoleAction>& actions) {
  for (const RoleAction& action : actions) {
    std::visit([this](const auto& one) { perform_one(one); }, action);
  }
}

void RoleJob::perform_one(const StartMember& action) {
  stopping_ = false;
  if (agent_.ending()) return;
  if (core::Status status = start_member(action); !status.ok()) {
    agent_.say(status.message());
    agent_.terminate(kStartFailed);
  }
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
}

void RoleJob::perform_one(const EndJob& action) { agent_.terminate(action.status); }

void RoleJob::perform_one(const Tell& action) { agent_.say(action.text); }

core::Status RoleJob::start_member(const StartMember& start) {
  const auto& [role, index] = tasks_[start.rank];
  Extras extras{.environment = cluster_environment(cluster_, start.rank)};
  extras.environment["REGROUP_RESTART_COUNT"] = std::to_string(start.restarts);
  if (start.rank < options_.cores.size()) extras.cores = options_.cores[start.rank];
  const auto size = static_cast<std::uint32_t>(tasks_.size());
  core::Status status = agent_.crew().start(
      {start.rank, start.rank, size, static_cast<std::uint32_t>(role), index}, std::move(extras));
  if (status.ok()) return status;
  return {status.code(), fmt::format("rank {} ({}) could not be started: {}", start.rank,
                                     task_name(options_.roles, tasks_[start.rank]), status.message())};
}

}  // namespace regroup::launcher
