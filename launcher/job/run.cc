// Checks what can be checked before anything starts, then hands over to the guardian.
#include "launcher/job/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/guardian.h"
#include "launcher/alloc/allocator.h"
#include "launcher/job/attempts.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/coordinator_options.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/job/fixed_job.h"
#include "launcher/job/fixed_size_job.h"
#include "launcher/job/job_files.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/rank_world.h"
#include "launcher/job/restarts.h"
#include "launcher/job/role_job.h"
#include "launcher/job/run_elastic_hosts.h"
#include "launcher/job/run_hosts.h"
#include "launcher/job/start.h"
#include "launcher/placement/members.h"
#include "launcher/placement/this_machine.h"

namespace regroup::job {
namespace {

// Leaves the file, as Open MPI 4 does.
base::Status report_pid(const std::string& to) {
  if (to.empty()) return {};
  if (to == "-" || to == "+") {
    std::FILE* stream = to == "-" ? stdout : stderr;
    fmt::print(stream, "{}\n", ::getpid());
    std::fflush(stream);  // what is left in the buffer is written again by each fork
    return {};
  }
  std::ofstream file(to);
  file << ::getpid() << '\n' << std::flush;
  return file ? base::Status() : base::system_error("write", to, errno);
}

// What the agent of an elastic job gets in addition.
struct ElasticLaunch {
  std::string checkpoints;    // their directory; "": there is none
  base::Duration spent{};     // by earlier launches, of --timeout
  base::Duration term_grace;  // term_grace()
};

int run_agent(const spec::Options& options, process::ProcessTableOptions processes,
              base::Fd guardian, const agent::JobFactory& job, const std::string& usage_file,
              const std::optional<ElasticLaunch>& elastic = std::nullopt) {
  auto port = process::hold_port();
  if (!port.ok()) return fail(port.status().message(), refused(options.compat));
  processes.master.port = port->port;
  boost::asio::io_context loop(1);
  agent::AgentOptions agent = agent_options(options, std::move(processes), std::move(*port));
  agent.usage.status_file = usage_file;
  if (elastic) agent.spent = elastic->spent;
  if (elastic) agent.term_grace = elastic->term_grace;
  AttemptLog attempt_log(elastic ? elastic->checkpoints : "");
  agent.noticed = [&attempt_log] { attempt_log.noticed(); };
  agent::Agent self(loop, std::move(agent), std::move(guardian), job);
  const auto watch = watch_notices(options, self);
  const int status = self.run();
  attempt_log.ended(self);
  return status;
}

// Which process serves the World of ranks that join.
enum class Ranks : std::uint8_t { kOfRoles, kServed, kServeThemselves };

// A job without a coordinator.
int run_alone(const spec::Options& options, process::ProcessTableOptions processes,
              std::size_t members, const agent::JobFactory& job, Ranks ranks = Ranks::kOfRoles) {
  const auto announced =
      announce_job(options.environment, processes.job, static_cast<std::uint32_t>(members));
  if (announced && ranks == Ranks::kServed)
    processes.world_socket = announced->files->agent_socket();
  if (announced && ranks == Ranks::kServeThemselves)
    processes.exits_file = announced->files->exits();
  return agent::Guardian(
             [&](base::Fd guardian) {
               const HeldJobFiles held(announced ? *announced->files
                                                 : JobFiles());  // the guardian may die
               return run_agent(options, processes, std::move(guardian), job,
                                announced ? held->usage() : "");
             },
             nullptr, {processes.record, {}, options.quiet}, forwarded_signals(options),
             notice_signals(options))
      .run();
}

int run_fixed_size(const spec::Options& options, process::ProcessTableOptions processes,
                   const Members& members, std::uint32_t slots,
                   const placement::PlacedJob& placed) {
  const bool limited = !options.oversubscribe && options.compat == spec::Compat::kOpenMpi;
  const std::uint32_t most = limited ? slots_for(options, slots) : 0;
  const spec::MapBy::Kind map = options.mapping.map.kind;
  const bool listed = !options.mapping.cpu_set.empty() || map == spec::MapBy::Kind::kCpuList;
  const placement::PlacedJob bindable = listed ? placed : placed.with_spare();
  FixedSizeOptions fixed{members.counts,
                         {{"", slots}},
                         {},
                         options.compat,
                         options.ulfm || options.keep_going,
                         options.quiet,
                         helper_options(options, processes.job),
                         bindable.cores(),
                         bindable.bindings(),
                         placed.threads({slots}),
                         placed.environments,
                         most,
                         options.term_grace};
  process::HeldLocks locks;
  const std::size_t size = placed.placement.slots.size();
  const auto world = prepare_checkpoints(options, members.shards, processes.job, false, &locks);
  if (!world.ok()) return fail(world.status().message(), refused(options.compat));
  for (process::App& app : processes.apps) add_world_variables(options, *world, app.environment);
  fixed.world = [&](agent::Agent& agent,
                    agent::OtherHosts*) -> std::unique_ptr<agent::MembershipJob> {
    const std::string& socket = agent.processes().options().world_socket;
    if (socket.empty()) return nullptr;
    return std::make_unique<RankWorld>(agent,
                                       rank_world_options(options, processes.job, socket,
                                                          std::vector<proto::NodeId>(size), *world),
                                       nullptr);
  };
  return run_alone(
      options, processes, size,
      [&](agent::Agent& agent) { return std::make_unique<FixedSizeJob>(agent, fixed); },
      options.world_options.empty() ? Ranks::kServeThemselves : Ranks::kServed);
}

int run_roles(const spec::Options& options, process::ProcessTableOptions processes,
              std::uint32_t slots, const placement::PlacedJob& placed) {
  const WorldStart world{{}, options.seed, options.shards};
  for (process::App& app : processes.apps) add_world_variables(options, world, app.environment);
  RoleJobOptions roles = role_options(options, processes.job, placed);
  roles.hosts = {{"", slots}};
  return run_alone(options, processes, placed.placement.slots.size(), [&](agent::Agent& agent) {
    return std::make_unique<RoleJob>(agent, std::move(roles));
  });
}

ElasticAgentOptions elastic_options(const spec::Options& options, const Members& members,
                                    const JobFiles& files, const std::string& job,
                                    std::uint32_t slots, const placement::PlacedJob& placed,
                                    const WorldStart& world) {
  agent::ElasticSetup setup =
      elastic_setup(options, arena_slots(members.max + options.spares), world);
  setup.slots = slot_resources(placed);
  ElasticAgentOptions out = elastic_agent_options(setup);
  out.socket = files.agent_socket();
  out.orphan_timeout = options.orphan_timeout;
  out.quiet = options.quiet;
  out.helper = helper_options(options, job);
  out.slots = slots;
  return out;
}

LaunchEnd run_elastic(const spec::Options& options, process::ProcessTableOptions processes,
                      const Members& members, std::uint32_t slots,
                      const placement::PlacedJob& placed, const Launch& launch) {
  const auto refuse = [&](const std::string& why) {
    return LaunchEnd{fail(why, refused(options.compat))};
  };
  process::HeldLocks locks;
  const auto world = prepare_checkpoints(options, members.shards, processes.job, false, &locks);
  if (!world.ok()) return refuse(world.status().message());
  const writer::CheckpointPlan& checkpoints = world->checkpoints;
  if (!launch.first() && !checkpoints.resume)
    return {fail(nothing_to_go_on_from(checkpoints.directory), launch.status)};
  auto made = make_job_files(options.environment, processes.job);
  if (!made.ok()) return refuse(made.status().message());
  const HeldJobFiles files(std::move(*made));
  processes.agent_socket = files->agent_socket();
  const auto attempt = count_attempt(checkpoints.directory, options.environment);
  const ElasticLaunch elastic{checkpoints.directory, launch.spent, term_grace(options)};
  if (!attempt.ok()) return refuse(attempt.status().message());
  for (process::App& app : processes.apps)
    app.environment["REGROUP_ATTEMPT"] = std::to_string(attempt->number);
  CoordinatorOptions coordinator =
      coordinator_options(options, members, *world, *files, slots_for(options, slots));
  coordinator.job.attempt = *attempt;
  const auto job = [&](agent::Agent& agent) {
    return std::make_unique<ElasticAgent>(
        agent, elastic_options(options, members, *files, processes.job, slots, placed, *world));
  };
  const HeldJournal journal(*files, launch);
  agent::Guardian guardian(
      [&](base::Fd socket) {
        const HeldJobFiles held(*files);  // the guardian may die
        return run_agent(options, processes, std::move(socket), job, held->usage(), elastic);
      },
      [&](base::Fd agent, proto::Incarnation incarnation) {
        return run_coordinator(coordinator, std::move(agent), incarnation);
      },
      {processes.record, options.orphan_timeout, options.quiet}, forwarded_signals(options),
      notice_signals(options));
  const int status = guardian.run();
  return end_of(guardian, status, checkpoints, journal);
}

// Members of each program at the start: of MIN:MAX no more than there are slots.
std::vector<std::uint32_t> placed_members(const spec::Options& options, const Members& members,
                                          std::uint32_t slots) {
  if (!options.elastic || options.oversubscribe) return members.counts;
  return {std::min(members.max, slots_for(options, slots))};
}

LaunchEnd launch_job(const spec::Options& options, const Launch& launch) {
  const auto refuse = [&](const std::string& why) {
    return LaunchEnd{fail(why, refused(options.compat))};
  };
  auto here = alloc::make_this_machine()->allocation();
  if (!here.ok()) return refuse(here.status().message());
  if (options.several_hosts() && options.elastic) return run_elastic_on_hosts(options, launch);
  if (options.several_hosts()) return {run_on_hosts(options, *here)};
  const auto allocation = placement::usable_allocation(options, std::move(*here));
  if (!allocation.ok()) return refuse(allocation.status().message());
  const auto asked = placement::members_here(options, *allocation);
  if (!asked.ok()) return refuse(asked.status().message());
  auto planned = plan_job(options, *asked, allocation->slots());
  if (const auto* refusal = std::get_if<Refusal>(&planned))
    return {fail(refusal->message, refusal->exit_status)};
  const JobPlan& plan = std::get<JobPlan>(planned);
  const Members& members = plan.members;
  if (const std::string ignored = unheeded_options(options, members.notes); !ignored.empty()) {
    fmt::print(stderr, "regroup: {}\n", base::escaped_lines(ignored));
  }
  const std::vector<std::uint32_t> counts = placed_members(options, members, allocation->slots());
  const auto folder = runtime_folder(options.environment);
  const auto placed = placement::place_members(options, *allocation, counts, needs_of(options),
                                               folder.ok() ? *folder : "");
  if (!placed.ok()) return {fail(placed.status().message(), placing_failed(options))};
  for (const std::string& warning : placed->warnings) {
    if (!options.quiet) fail(warning, 0);
  }
  placement::print_display(options, *allocation, *placed, counts);
  if (options.do_not_launch) return {0};
  if (launch.first()) {  // it does not change
    const base::Status reported = report_pid(options.report_pid);
    if (!reported.ok()) return refuse(fmt::format("--report-pid: {}", reported.message()));
  }
  std::string note;
  if (runtime_folder(options.environment, &note).ok() && !note.empty() && !options.quiet)
    fail(note, 0);
  const process::ProcessTableOptions processes = process_table_options(options, plan.apps);
  if (has_roles(options)) return {run_roles(options, processes, allocation->slots(), *placed)};
  if (options.elastic)
    return run_elastic(options, processes, members, allocation->slots(), *placed, launch);
  return {run_fixed_size(options, processes, members, allocation->slots(), *placed)};
}

}  // namespace

int run_job(const spec::Options& options) {
  Restarts restarts(options);
  for (;;) {
    const auto over = restarts.over(launch_job(options, restarts.launch()));
    if (over) return *over;
  }
}

}  // namespace regroup::job
