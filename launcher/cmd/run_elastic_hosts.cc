// Where members run is decided by the coordinator, from the hosts that came up; one that does not is tried
// again.
#include "launcher/cmd/run_elastic_hosts.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <utility>
#include <variant>

#include "core/arena.h"
#include "launcher/cmd/elastic_coordinator.h"
#include "launcher/cmd/elastic_hub.h"
#include "launcher/cmd/host_setup.h"
#include "launcher/cmd/job_files.h"
#include "launcher/cmd/job_plan.h"
#include "launcher/cmd/start.h"
#include "launcher/supervise/guardian.h"

namespace regroup::cmd {
namespace {

constexpr std::uint32_t kSpareLines = 2;  // of dead members whose partial sums still count
constexpr int kNoHost = 1;                // no agent came up

// On one host there may be all members of the job.
std::uint32_t lines_of(const Options& options) {
  return std::min<std::uint32_t>(options.max + options.spares + kSpareLines, core::kMaxSlots - 1);
}

// In the process of the hub, from before its Agent exists. The exit status of the process.
int run_hub(const Options& options, const launcher::App& app, launcher::CrewOptions crew, core::Fd guardian) {
  ::prctl(PR_SET_NAME, "regroup-hub");
  boost::asio::io_context loop(1);
  auto hosts = send_agents(loop, options, crew.job, true);
  if (!hosts.ok()) return refuse_job(loop, {kNoHost, hosts.status().message()}, std::move(guardian));
  for (const core::Status& why : (*hosts)->bring_up()) fail(why.message(), 0);
  ElasticHubOptions hub;
  hub.setup = common_setup(options);
  hub.setup.stdin_to.to = launcher::StdinRequest::To::kNone;
  hub.setup.elastic =
      node::ElasticSetup{lines_of(options),       options.shards,        options.seed,
                         options.any_fingerprint, options.learner_steps, options.learner_state};
  for (std::size_t index = 0; index < (*hosts)->size() && hub.setup.master.address.empty(); ++index) {
    if ((*hosts)->is_up(index)) hub.setup.master = {(*hosts)->address(index), (*hosts)->facts(index).port};
  }
  hub.app = app;
  for (const launcher::HostRequest& host : options.hosts) hub.slots.push_back(host.slots);
  hub.orphan_timeout = options.orphan_timeout;
  hub.quiet = options.quiet;
  crew.stdin_to.to = launcher::StdinRequest::To::kNone;
  return launcher::Agent(loop, agent_options(options, std::move(crew), {}), std::move(guardian),
                         [&](launcher::Agent& self) {
                           return std::make_unique<ElasticHub>(self, std::move(hub), std::move(*hosts));
                         })
      .run();
}

bool by_node(const launcher::MapBy& map) {
  return map.kind == launcher::MapBy::Kind::kUnit && map.unit == launcher::Unit::kNode;
}

CoordinatorOptions coordinator_options(const Options& options, std::uint32_t start, const std::string& job,
                                       const JobFiles& files) {
  CoordinatorOptions out;
  out.policy = {.min = options.min,
                .max = options.max,
                .target = start,
                .spares = options.spares,
                .oversubscribe = options.oversubscribe,
                .by_node = by_node(options.mapping.map),
                .any_fingerprint = options.any_fingerprint,
                .replace = options.replace,
                .shards = options.shards,
                .wait = options.wait,
                .ready_timeout = options.ready_timeout,
                .kept_results = options.learner_steps,
                .learn_above = options.learner_state};
  if (options.max_restarts) out.policy.relaunch.max_restarts = *options.max_restarts;
  out.job = {.id = job, .seed = options.seed, .nodes = {}};
  out.files = files;
  out.quiet = options.quiet;
  return out;
}

}  // namespace

int run_elastic_on_hosts(Options options) {
  if (!options.checkpoint.directory.empty())
    return fail("--checkpoint: jobs on several hosts make no checkpoints yet", refused(options.compat));
  const std::uint32_t start = options.start;  // 0: as many as there are slots
  launcher::Allocation unbounded;
  unbounded.hosts.push_back({"", core::kMaxMembers, {}});
  auto planned = plan_job(options, unbounded);
  if (const auto* refusal = std::get_if<Refusal>(&planned))
    return fail(refusal->message, refusal->exit_status);
  const launcher::App app = std::get<JobPlan>(planned).apps.at(0);
  if (const std::string told = unheeded_options(options); !told.empty()) fail(told, 0);
  launcher::CrewOptions crew = crew_of(options, {});
  auto files = make_job_files(options.environment, crew.job);
  if (!files.ok()) return fail(files.status().message(), refused(options.compat));
  const CoordinatorOptions coordinator = coordinator_options(options, start, crew.job, *files);
  const auto record = crew.record;
  const int status = launcher::Guardian(
                         [&](core::Fd guardian) {
                           const int hub = run_hub(options, app, std::move(crew), std::move(guardian));
                           remove_job_files(*files);  // the guardian may be dead
                           return hub;
                         },
                         [&](core::Fd agent, core::Incarnation incarnation) {
                           return run_coordinator(coordinator, std::move(agent), incarnation);
                         },
                         {record, options.orphan_timeout, options.quiet}, forwarded_signals(options))
                         .run();
  remove_job_files(*files);
  return status;
}

}  // namespace regroup::cmd
