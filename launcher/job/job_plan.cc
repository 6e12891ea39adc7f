// A refused job ends with the exit status of Open MPI 5, or of hydra with --compat=mpich.
#include "launcher/job/job_plan.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/job/start.h"
#include "launcher/process/environment.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

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

}  // namespace regroup::job
