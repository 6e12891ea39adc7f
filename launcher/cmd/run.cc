// Checks what can be checked before anything starts, then hands over to the guardian.
#include "launcher/cmd/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/alloc/allocator.h"
#include "launcher/cmd/elastic_agent.h"
#include "launcher/cmd/elastic_coordinator.h"
#include "launcher/cmd/job_files.h"
#include "launcher/cmd/job_plan.h"
#include "launcher/cmd/run_elastic_hosts.h"
#include "launcher/cmd/run_hosts.h"
#include "launcher/cmd/start.h"
#include "launcher/place/members.h"
#include "launcher/roles/role_job.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/guardian.h"
#include "launcher/supervise/rigid_job.h"

namespace regroup::cmd {
namespace {

constexpr std::uint32_t kSpareLines = 2;  // of dead members whose partial sums still count

// As Open MPI 4, which leaves the file.
core::Status report_pid(const std::string& to) {
  if (to.empty()) return {};
  if (to == "-" || to == "+") {
    std::FILE* stream = to == "-" ? stdout : stderr;
    fmt::print(stream, "{}\n", ::getpid());
    std::fflush(stream);  // what is left in the buffer is written again by each fork
    return {};
  }
  std::ofstream file(to);
  file << ::getpid() << '\n' << std::flush;
  return file ? core::Status() : core::system_error("write", to, errno);
}

int run_agent(const Options& options, launcher::CrewOptions crew, core::Fd guardian,
              const launcher::JobFactory& job, const std::string& usage_file = "") {
  auto port = launcher::hold_port();
  if (!port.ok()) return fail(port.status().message(), refused(options.compat));
  crew.master.port = port->port;
  boost::asio::io_context loop(1);
  launcher::AgentOptions agent = agent_options(options, std::move(crew), std::move(*port));
  agent.usage.status_file = usage_file;
  return launcher::Agent(loop, std::move(agent), std::move(guardian), job).run();
}

// A job without a coordinator.
int run_alone(const Options& options, const launcher::CrewOptions& crew, const launcher::JobFactory& job) {
  return launcher::Guardian(
             [&](core::Fd guardian) { return run_agent(options, crew, std::move(guardian), job); }, nullptr,
             {crew.record, {}, options.quiet}, forwarded_signals(options))
      .run();
}

int run_rigid(const Options& options, const launcher::CrewOptions& crew,
              const std::vector<std::uint32_t>& counts, std::uint32_t slots,
              const launcher::PlacedJob& placed) {
  const bool limited = !options.oversubscribe && options.compat == launcher::Compat::kOpenMpi;
  const std::uint32_t most = limited ? slots_for(options, slots) : 0;
  const launcher::MapBy::Kind map = options.mapping.map.kind;
  const bool listed = !options.mapping.cpu_set.empty() || map == launcher::MapBy::Kind::kCpuList;
  const launcher::PlacedJob seats = listed ? placed : placed.with_spare();
  const launcher::RigidOptions rigid{counts,
                                     {{"", slots}},
                                     {},
                                     options.compat,
                                     options.ulfm || options.keep_going,
                                     options.quiet,
                                     helper_options(options, crew.job),
                                     seats.cores(),
                                     seats.bindings(),
                                     placed.threads(slots),
                                     placed.environments,
                                     most,
                                     options.term_grace};
  return run_alone(options, crew, [&](launcher::Agent& agent) {
    return std::make_unique<launcher::RigidJob>(agent, rigid);
  });
}

int run_roles(const Options& options, const launcher::CrewOptions& crew, const JobPlan& plan,
              std::uint32_t slots, const launcher::PlacedJob& placed) {
  launcher::RoleJobOptions roles;
  roles.name = plan.name.empty() ? crew.job : plan.name;
  roles.roles = plan.roles;
  roles.restart.whole_job = options.restart_policy == launcher::RestartPolicy::kRestart;
  if (options.max_restarts) roles.restart.max_restarts = *options.max_restarts;
  roles.term_grace = options.term_grace;
  roles.cores = placed.cores();
  roles.bindings = placed.bindings();
  roles.slots = slots;
  roles.quiet = options.quiet;
  roles.helper = helper_options(options, crew.job);
  return run_alone(options, crew,
                   [&](launcher::Agent& agent) { return std::make_unique<launcher::RoleJob>(agent, roles); });
}

CoordinatorOptions coordinator_options(const Options& options, const std::string& id, const JobFiles& files,
                                       std::uint32_t slots, const CheckpointPlan& checkpoints) {
  slots = slots_for(options, slots);
  CoordinatorOptions out;
  out.policy = {.min = options.min,
                .max = options.max,
                .target = options.start,
                .spares = options.spares,
                .slots = options.oversubscribe ? std::max(options.max + options.spares, slots) : slots,
                .any_fingerprint = options.any_fingerprint,
                .replace = options.replace,
                .shards = options.shards,
                .wait = options.wait,
                .ready_timeout = options.ready_timeout,
                .kept_results = options.learner_steps,
                .learn_above = options.learner_state};
  if (checkpoints.resume) out.policy.resume = checkpoints.resume->step;
  if (options.max_restarts) out.policy.relaunch.max_restarts = *options.max_restarts;
  out.job = {.id = id, .seed = options.seed};
  out.files = files;
  out.quiet = options.quiet;
  return out;
}

ElasticAgentOptions elastic_options(const Options& options, const JobFiles& files, const std::string& job,
                                    std::uint32_t slots, const launcher::PlacedJob& placed,
                                    const CheckpointPlan& checkpoints) {
  const std::uint32_t lines =
      std::min<std::uint32_t>(options.max + options.spares + kSpareLines, core::kMaxSlots - 1);
  return {{.slots = lines,
           .shards = options.shards,
           .seed = options.seed,
           .any_fingerprint = options.any_fingerprint,
           .kept_results = options.learner_steps,
           .learn_above = options.learner_state,
           .checkpoints = checkpoints.every > 0,
           .checkpoint_memory = checkpoints.memory},
          files.agent_socket(),
          options.orphan_timeout,
          options.quiet,
          helper_options(options, job),
          slots,
          placed.cores(),
          placed.environments,
          ElasticAgentOptions().join_deadline,
          nullptr,
          checkpoints};
}

int run_elastic(Options options, launcher::CrewOptions crew, std::uint32_t slots,
                const launcher::PlacedJob& placed) {
  std::optional<core::FileLock> lock;
  const auto checkpoints = prepare_checkpoints(&options, crew.job, &lock);
  if (!checkpoints.ok()) return fail(checkpoints.status().message(), refused(options.compat));
  auto files = make_job_files(options.environment, crew.job);
  if (!files.ok()) return fail(files.status().message(), refused(options.compat));
  crew.agent_socket = files->agent_socket();
  const CoordinatorOptions coordinator = coordinator_options(options, crew.job, *files, slots, *checkpoints);
  const auto job = [&](launcher::Agent& agent) {
    return std::make_unique<ElasticAgent>(
        agent, elastic_options(options, *files, crew.job, slots, placed, *checkpoints));
  };
  const int status = launcher::Guardian(
                         [&](core::Fd guardian) {
                           const int agent =
                               run_agent(options, crew, std::move(guardian), job, files->usage());
                           remove_job_files(*files);  // the guardian may be dead
                           return agent;
                         },
                         [&](core::Fd agent, core::Incarnation incarnation) {
                           return run_coordinator(coordinator, std::move(agent), incarnation);
                         },
                         {crew.record, options.orphan_timeout, options.quiet}, forwarded_signals(options))
                         .run();
  remove_job_files(*files);
  return status;
}

// Of each program, at once: of MIN:MAX no more than there are slots.
std::vector<std::uint32_t> placed_members(const Options& options, const JobPlan& plan, std::uint32_t slots) {
  if (!options.elastic || options.oversubscribe) return plan.counts;
  return {std::min(options.max, slots_for(options, slots))};
}

// As Open MPI 5 has it.
int placing_failed(const Options& options) {
  if (options.compat == launcher::Compat::kMpich) return kHydraFailed;
  return launcher::binds_beyond_map(options.mapping) ? 77 : 213;
}

}  // namespace

int run_job(Options options) {
  auto allocation = launcher::make_this_machine()->allocation();
  if (!allocation.ok()) return fail(allocation.status().message(), refused(options.compat));
  if (options.several_hosts() && options.elastic) return run_elastic_on_hosts(std::move(options));
  if (options.several_hosts()) return run_on_hosts(std::move(options), *allocation);
  if (const core::Status status = launcher::prepare_members(options, *allocation); !status.ok())
    return fail(status.message(), refused(options.compat));
  auto planned = plan_job(options, *allocation);
  if (const auto* refusal = std::get_if<Refusal>(&planned))
    return fail(refusal->message, refusal->exit_status);
  const JobPlan& plan = std::get<JobPlan>(planned);
  if (const std::string told = unheeded_options(options); !told.empty()) {
    fmt::print(stderr, "regroup: {}\n", told);
  }
  const std::vector<std::uint32_t> counts = placed_members(options, plan, allocation->slots());
  const auto placed = launcher::place_members(options, *allocation, counts);
  if (!placed.ok()) return fail(placed.status().message(), placing_failed(options));
  launcher::print_display(options, *allocation, *placed, counts);
  if (options.do_not_launch) return 0;
  if (core::Status status = report_pid(options.report_pid); !status.ok()) {
    return fail(fmt::format("--report-pid: {}", status.message()), refused(options.compat));
  }
  std::string note;
  if (runtime_folder(options.environment, &note).ok() && !note.empty() && !options.quiet) fail(note, 0);
  const launcher::CrewOptions crew = crew_of(options, plan.apps);
  if (!plan.roles.empty()) return run_roles(options, crew, plan, allocation->slots(), *placed);
  return options.elastic ? run_elastic(options, crew, allocation->slots(), *placed)
                         : run_rigid(options, crew, plan.counts, allocation->slots(), *placed);
}

}  // namespace regroup::cmd
