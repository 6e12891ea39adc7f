// The launcher's side is the same for any number of hosts: files, journal, guardian, coordinator.
// The agent's process has the members of this host, if the job has no other; else it is the
// controller of agents on all hosts, from which the coordinator chooses, and the start of those
// that are not up is retried.
#include "launcher/job/launch_elastic.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "checkpoint/writer/checkpoint_texts.h"
#include "launcher/agent/guardian.h"
#include "launcher/job/allocation_scaler.h"
#include "launcher/job/attempts.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/coordinator_options.h"
#include "launcher/job/discovery.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/job/elastic_controller.h"
#include "launcher/job/host_setup.h"
#include "launcher/job/host_slots.h"
#include "launcher/job/job_files.h"
#include "launcher/job/own_checkpoints.h"
#include "launcher/job/start.h"
#include "launcher/placement/cluster_view.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

constexpr int kNoHost = 1;  // no agent came up

// The resources of the members of one host.
ElasticControllerOptions::Resources resources_on(const spec::JobSpec& spec,
                                                 const spec::HostRequest& host, std::uint32_t slots,
                                                 const base::Result<std::string>& answer) {
  if (!answer.ok()) return answer.status();
  auto inventory = placement::inventory_from_json(*answer);
  if (!inventory.ok())
    return base::Status(inventory.code(),
                        fmt::format("host {}: {}", host.name, inventory.status().message()));
  REGROUP_ASSIGN_OR_RETURN(const auto placed,
                           resolve_host(spec, host, slots, std::move(*inventory)));
  for (const std::string& warning : placed.warnings) {
    if (!spec.quiet) fail(warning, 0);
  }
  return slot_resources(placed);
}

std::uint32_t slots_of(const spec::JobSpec& spec, const agent::Hosts& hosts, std::size_t index) {
  return effective_slots(spec.hosts.at(index).slots, hosts.facts(index).slots);
}

std::uint32_t slots_up(const spec::JobSpec& spec, const agent::Hosts& hosts) {
  std::uint32_t slots = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts.is_up(i)) slots += slots_of(spec, hosts, i);
  }
  return slots;
}

// Requests the inventory of all hosts that are up. The job starts without hosts that do not answer
// or do not fit the request, if enough hosts remain.
base::Status query_first_resources(const spec::JobSpec& spec, agent::Hosts& hosts,
                                   ElasticControllerOptions& controller) {
  const auto order = placement::inventory_options(spec);
  if (!order) return {};
  controller.inventory =
      agent::InventoryRequest{order->devices, order->topology, {}, order->claims};
  controller.resources_of = [spec](const spec::HostRequest& host, std::uint32_t slots,
                                   const base::Result<std::string>& answer) {
    return resources_on(spec, host, slots, answer);
  };
  std::vector<std::pair<std::size_t, base::Status>> unfit;
  std::vector<bool> asked;
  for (std::size_t i = 0; i < hosts.size(); ++i) asked.push_back(hosts.is_up(i));
  const auto answers = hosts.query_inventory(std::vector(hosts.size(), *controller.inventory));
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!asked[i] || !hosts.is_up(i))
      continue;  // the controller asks a host that came up meanwhile
    auto resources =
        controller.resources_of(spec.hosts.at(i), slots_of(spec, hosts, i), answers[i]);
    if (resources.ok()) {
      controller.first_resources[i] = std::move(*resources);
    } else {
      unfit.emplace_back(i, resources.status());
      hosts.give_up(hosts.id(i), resources.status());
    }
  }
  if (!unfit.empty() && slots_up(spec, hosts) < spec.min) return unfit.front().second;
  for (const auto& [index, why] : unfit)
    fail(fmt::format("{}; the job starts without it", why.message()), 0);
  return {};
}

// The directory for ATTEMPTS: where all hosts see the checkpoints.
const std::string& attempts_in(const spec::JobSpec& spec, const writer::CheckpointPlan& plan) {
  return !spec.several_hosts() || plan.shared.empty() ? plan.directory : plan.shared;
}

// Whether a line on standard error can be drawn again.
bool may_draw(const spec::JobSpec& spec) {
  const auto terminal = spec.environment.find("TERM");
  return ::isatty(STDERR_FILENO) == 1 &&
         (terminal == spec.environment.end() || terminal->second != "dumb");
}

// What both kinds of agent's process need of the launch; made before the guardian forks.
struct Prepared {
  const ResolvedJob& job;
  const JobFiles& files;
  const JobLaunch& launch;
  WorldStart world;
  base::Duration term_grace;
  std::shared_ptr<process::TerminalLine> line;

  [[nodiscard]] agent::ElasticSetup setup(const spec::JobSpec& spec) const {
    return elastic_setup(spec, arena_slots(job.members.max + spec.spares), world);
  }
};

// Serves the job until it is over; returns the exit status of the process.
int serve(const spec::JobSpec& spec, boost::asio::io_context& loop, agent::AgentOptions agent,
          const Prepared& prepared, AttemptLog& attempts, base::Fd guardian,
          const agent::JobFactory& make_job) {
  agent.usage.status_file = prepared.files.usage();
  agent.term_grace = prepared.term_grace;
  agent.line = prepared.line;
  agent.noticed = [&attempts] { attempts.noticed(); };
  agent::Agent self(loop, std::move(agent), std::move(guardian), make_job);
  std::unique_ptr<preempt::NoticeWatch> watch;  // on several hosts each agent watches its own
  if (!spec.several_hosts()) watch = watch_notices(spec, self);
  const int status = self.run();
  attempts.ended(self);
  return status;
}

// The process of the agent of the only host.
int run_agent(const spec::JobSpec& spec, process::ProcessTableOptions processes,
              const Prepared& prepared, base::Fd guardian) {
  auto port = process::hold_port();
  if (!port.ok()) return fail(port.status().message(), refused(spec.compat));
  processes.master.port = port->port;
  agent::ElasticSetup setup = prepared.setup(spec);
  setup.slots = slot_resources(prepared.job.placed);
  ElasticAgentOptions elastic = elastic_agent_options(setup);
  elastic.socket = prepared.files.agent_socket();
  elastic.orphan_timeout = spec.orphan_timeout;
  elastic.quiet = spec.quiet;
  elastic.helper = helper_options(spec, processes.job);
  elastic.slots = prepared.job.hosts.at(0).slots;
  boost::asio::io_context loop(1);
  agent::AgentOptions agent = agent_options(spec, std::move(processes), std::move(*port));
  agent.spent = prepared.launch.spent;
  AttemptLog attempts(attempts_in(spec, prepared.world.checkpoints));
  return serve(spec, loop, std::move(agent), prepared, attempts, std::move(guardian),
               [&elastic](agent::Agent& self) {
                 return std::make_unique<ElasticAgent>(self, std::move(elastic));
               });
}

// The process of the controller of several hosts.
int run_controller(const spec::JobSpec& spec, process::ProcessTableOptions processes,
                   Prepared prepared, base::Fd guardian) {
  const Members& members = prepared.job.members;
  const JobLaunch& launch = prepared.launch;
  writer::CheckpointPlan& checkpoints = prepared.world.checkpoints;
  ::prctl(PR_SET_NAME, "regroup-control");
  boost::asio::io_context loop(1);
  auto hosts = send_agents(loop, spec, processes.job, true);
  if (!hosts.ok())
    return refuse_job(loop, {kNoHost, hosts.status().message()}, std::move(guardian));
  BringUp coming(spec, guardian, launch.spent);
  std::function<bool()> enough = [&] {
    return slots_up(spec, **hosts) >= std::max(members.min, members.start);
  };
  if (!checkpoints.shared.empty()) enough = {};  // each may have the newest checkpoint
  coming.run(**hosts, std::move(enough));
  if (coming.over()) return refuse_job(loop, *coming.over(), std::move(guardian));
  ElasticControllerOptions controller;
  controller.setup = common_setup(spec);
  controller.setup.stdin_to.to = spec::StdinRequest::To::kNone;
  controller.setup.usage = true;
  for (std::size_t index = 0; index < (*hosts)->size(); ++index) {
    if (!(*hosts)->is_up(index)) continue;
    controller.setup.master = {(*hosts)->address(index), (*hosts)->facts(index).port};
    break;
  }
  controller.app = prepared.job.apps.at(0);
  if (const base::Status status = query_first_resources(spec, **hosts, controller); !status.ok())
    return refuse_job(loop, {placing_failed(spec), status.message()}, std::move(guardian));
  const base::Status resumed =
      start_from_newest_of_hosts(loop, **hosts, spec, coming, &prepared.world);
  if (coming.over()) return refuse_job(loop, *coming.over(), std::move(guardian));
  if (!resumed.ok())
    return refuse_job(loop, {refused(spec.compat), resumed.message()}, std::move(guardian));
  if (!checkpoints.shared.empty() && checkpoints.resume) {
    if (!spec.quiet) fail(writer::resumes(checkpoints), 0);
    controller.known = {checkpoints.resume->step, checkpoints.shards};
  }
  controller.setup.elastic = prepared.setup(spec);
  AttemptLog attempts(attempts_in(spec, checkpoints));
  if (!launch.first() && !checkpoints.resume) {
    attempts.failed();
    return refuse_job(loop, {launch.status, nothing_to_go_on_from(attempts_in(spec, checkpoints))},
                      std::move(guardian));
  }
  controller.granted = spec.hosts;
  controller.orphan_timeout = spec.orphan_timeout;
  controller.grants_socket = prepared.files.grants_socket();
  controller.quiet = spec.quiet;
  controller.notice_grace = notice_grace(spec);
  controller.scaler = AllocationScaler::make(loop, spec, prepared.files, way_to_all(spec));
  controller.spares = spec.spares;
  processes.stdin_to.to = spec::StdinRequest::To::kNone;
  agent::AgentOptions agent = agent_options(spec, std::move(processes), {});
  agent.spent = coming.spent();
  std::optional<Discovery> discovery;
  return serve(
      spec, loop, std::move(agent), prepared, attempts, std::move(guardian),
      [&](agent::Agent& self) {
        auto made =
            std::make_unique<ElasticController>(self, std::move(controller), std::move(*hosts));
        if (!spec.discovery.script.empty()) {
          const Discovery::Events events{
              [elastic = made.get(), way = way_to_all(spec)](
                  const std::vector<spec::HostRequest>& named) { elastic->follow(named, way); },
              [elastic = made.get()](const std::string& text) { elastic->say(text); }};
          discovery.emplace(loop, spec, events).start();
        }
        return made;
      });
}

}  // namespace

LaunchEnd launch_elastic(const spec::JobSpec& spec, ResolvedJob job, const JobLaunch& launch) {
  const auto refuse = [&](const base::Status& why) {
    return LaunchEnd{fail(why.message(), refused(spec.compat))};
  };
  const bool several = spec.several_hosts();
  process::ProcessTableOptions processes = process_table_options(spec, {});
  process::HeldLocks locks;
  const auto world = prepare_checkpoints(spec, job.members.shards, processes.job, several, &locks);
  if (!world.ok()) return refuse(world.status());
  const writer::CheckpointPlan& checkpoints = world->checkpoints;
  // On several hosts with a directory on each, the newest checkpoint is known when they are up.
  const bool known = !several || checkpoints.shared.empty();
  if (!launch.first() && !checkpoints.resume && known)
    return {fail(nothing_to_go_on_from(checkpoints.directory), launch.status)};
  if (several && known && checkpoints.resume && !spec.quiet) fail(writer::resumes(checkpoints), 0);
  auto made = make_job_files(spec.environment, processes.job);
  if (!made.ok()) return refuse(made.status());
  const HeldJobFiles files(std::move(*made));
  const auto attempt = count_attempt(attempts_in(spec, checkpoints), spec.environment);
  if (!attempt.ok()) return refuse(attempt.status());
  for (process::App& app : job.apps) {
    app.environment["REGROUP_ATTEMPT"] = std::to_string(attempt->number);
    app.environment.erase("REGROUP_SHARDS");  // of an outer job, for one
    if (known || spec.shards != 0)
      app.environment["REGROUP_SHARDS"] = std::to_string(world->shards);
  }
  CoordinatorOptions coordinator = coordinator_options(
      spec, job.members, *world, *files, several ? std::nullopt : std::optional(job.slots));
  coordinator.job.attempt = *attempt;
  if (!several) {
    processes.apps = job.apps;
    processes.agent_socket = files->agent_socket();
  }
  coordinator.progress = spec.progress;
  if (spec.progress && may_draw(spec)) coordinator.line = process::TerminalLine::make();
  const Prepared prepared{job, *files, launch, *world, term_grace(spec), coordinator.line};
  const auto record = processes.record;
  const HeldJournal journal(*files, launch);
  agent::Guardian guardian(
      [&](base::Fd socket) {
        const HeldJobFiles held(*files);  // the guardian may die
        return several ? run_controller(spec, std::move(processes), prepared, std::move(socket))
                       : run_agent(spec, std::move(processes), prepared, std::move(socket));
      },
      [&](base::Fd agent, proto::Incarnation incarnation) {
        return run_coordinator(coordinator, std::move(agent), incarnation);
      },
      {record, spec.orphan_timeout, spec.quiet, coordinator.line}, forwarded_signals(spec),
      notice_signals(spec));
  const int status = guardian.run();
  return end_of(guardian, status, checkpoints, journal);
}

}  // namespace regroup::job
