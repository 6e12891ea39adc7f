// A refused job ends with the exit status of Open MPI 5, or of hydra with --compat=mpich.
#include "launcher/job/job_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/job/start.h"
#include "launcher/process/environment.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

constexpr std::uint32_t kSpareSlots = 2;  // of dead members whose partial sums still count
constexpr int kNotInPath = 66;
constexpr int kNoFolder = 181;
constexpr int kNotExecutable = 183;

// The Open MPI status, or hydra's only one.
int as_under(spec::Compat compat, int status) {
  return compat == spec::Compat::kMpich ? kHydraFailed : status;
}

std::variant<process::App, Refusal> find_app(const spec::AppRequest& app, spec::Compat compat) {
  if (const base::Status folder = process::check_wdir(app.wdir); !folder.ok())
    return Refusal{as_under(compat, kNoFolder), folder.message()};
  spec::Environment searched_in = app.environment;
  if (!app.search_path.empty()) searched_in["PATH"] = app.search_path;
  auto path = process::find_member_program(app.command.at(0), app.wdir, searched_in);
  if (path.ok())
    return process::App{*path, app.command, app.environment, app.wdir, app.role, app.limits};
  const bool searched = app.command[0].find('/') == std::string::npos;
  const int status = searched ? kNotInPath : kNotExecutable;
  return Refusal{as_under(compat, status), path.status().message()};
}

}  // namespace

std::variant<JobPlan, Refusal> plan_job(const spec::Options& options, spec::MemberRange asked,
                                        std::uint32_t slots) {
  auto members = fit_to_slots(options, asked, slots);
  if (!members.ok()) return Refusal{refused(options.compat), members.status().message()};
  JobPlan plan;
  plan.members = std::move(*members);
  const spec::StdinRequest& input = options.stdin_to;
  if (input.to == spec::StdinRequest::To::kRank && input.rank >= plan.members.max) {
    return Refusal{refused(options.compat), fmt::format("--stdin {}: expected a rank of at most {}",
                                                        input.rank, plan.members.max - 1)};
  }
  for (const spec::AppRequest& app : options.apps) {
    if (options.several_hosts()) {
      plan.apps.push_back({"", app.command, app.environment, app.wdir, app.role, app.limits});
      continue;
    }
    auto found = find_app(app, options.compat);
    if (auto* refusal = std::get_if<Refusal>(&found)) {
      if (!options.like_command.empty())
        refusal->message += fmt::format("; did you mean regroup {}?", options.like_command);
      return std::move(*refusal);
    }
    plan.apps.push_back(std::move(std::get<process::App>(found)));
  }
  return plan;
}

// If no role says how many GPUs its members need, chiefs and workers get those of --gpus-per-rank,
// at least one, and servers and evaluators none.
placement::MemberNeeds needs_of(const spec::Options& options, const JobPlan& plan) {
  placement::MemberNeeds out;
  const bool said = std::any_of(options.roles.begin(), options.roles.end(),
                                [](const Role& role) { return role.gpus > 0; });
  for (std::size_t i = 0; i < options.roles.size(); ++i) {
    const Role& role = options.roles[i];
    const RoleKind kind = kind_of(role);
    const bool computes = kind == RoleKind::kChief || kind == RoleKind::kWorker;
    out.roles.push_back(role.name);
    out.gpus.push_back(said ? role.gpus : computes ? std::max(1U, options.mapping.gpus) : 0);
    out.cores.push_back(static_cast<std::uint32_t>(std::ceil(plan.apps.at(i).limits.cpus)));
  }
  return out;
}

RoleJobOptions role_options(const spec::Options& options, const std::string& job,
                            const placement::PlacedJob& placed) {
  RoleJobOptions out;
  out.name = options.job_name.empty() ? job : options.job_name;
  out.roles = options.roles;
  out.restart.whole_job = options.restart_policy == spec::RestartPolicy::kRestart;
  if (options.max_restarts) out.restart.max_restarts = *options.max_restarts;
  out.term_grace = options.term_grace;
  out.cores = placed.cores();
  out.bindings = placed.bindings();
  out.environments = placed.environments;
  out.quiet = options.quiet;
  out.helper = helper_options(options, job);
  return out;
}

// All members may come to be on one host.
std::uint32_t arena_slots(std::uint32_t members) {
  return std::min<std::uint32_t>(members + kSpareSlots, proto::kMaxSlots - 1);
}

int placing_failed(const spec::Options& options) {
  if (options.compat == spec::Compat::kMpich) return kHydraFailed;
  return placement::binds_beyond_map(options.mapping) ? 77 : 213;
}

}  // namespace regroup::job
