// One way for any number of hosts. Without other hosts the job is resolved before the guardian
// forks, so that a refusal needs no process; with others their agents decide what there is.
#include "launcher/job/launch_fixed.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/writer/persist_process.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/job/fixed_job.h"
#include "launcher/job/fixed_size_job.h"
#include "launcher/job/host_setup.h"
#include "launcher/job/inventory.h"
#include "launcher/job/job_files.h"
#include "launcher/job/own_checkpoints.h"
#include "launcher/job/rank_world.h"
#include "launcher/job/role_job.h"
#include "launcher/job/start.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

// The sentence for the user that a parameter server resumes from plan.resume.
std::string loads(const spec::CheckpointPlan& plan) {
  return fmt::format("the parameter server begins with the tables of checkpoint {}, {}",
                     plan.resume->step, plan.resume->path);
}

constexpr int kNoHostYet = 1;  // an agent could not be started

// Runs in the process of this host's agent, except for what is known before it.
class FixedLaunch {
 public:
  // `locks`: for the directories of its checkpoints.
  FixedLaunch(const spec::JobSpec& spec, const alloc::Allocation& here, process::HeldLocks* locks)
      : spec_(spec),
        here_(here),
        locks_(locks),
        processes_(process_table_options(spec, {})),
        id_(processes_.job) {}

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] std::shared_ptr<process::JobRecord> record() const { return processes_.record; }

  // Of a job without other hosts: before the guardian forks.
  std::optional<Refusal> prepare(ResolvedJob job) {
    job_ = std::move(job);
    return prepare_world(nullptr);
  }

  // Returns the exit status of the process. The guardian has the exit status of the job.
  int run(boost::asio::io_context& loop, base::Fd guardian) {
    BringUp coming(spec_, guardian);
    if (spec_.several_hosts()) {
      if (const auto refused = prepare_hosts(loop, coming))
        return refuse_job(loop, *refused, std::move(guardian));
    }
    auto port = process::hold_port();
    if (!port.ok())
      return refuse_job(loop, {refused(spec_.compat), port.status().message()},
                        std::move(guardian));
    announced_ = announce_job(spec_.environment, id_,
                              static_cast<std::uint32_t>(job_.host_of.size()), spec_.roles);
    if (const base::Status status = set_up(*port); !status.ok())
      return refuse_job(loop, {kNoHostYet, status.message()}, std::move(guardian));
    agent::AgentOptions agent = agent_options(spec_, std::move(processes_), std::move(*port));
    if (hosts_) agent.spent = coming.spent();
    if (announced_) agent.usage.status_file = announced_->files->usage();
    agent::Agent self(loop, std::move(agent), std::move(guardian),
                      [this](agent::Agent& self) { return make_job(self); });
    const auto watch = watch_notices(spec_, self);
    return self.run();
  }

 private:
  // Starts the agents of the other hosts and resolves the job with what they report.
  std::optional<Refusal> prepare_hosts(boost::asio::io_context& loop, BringUp& coming) {
    auto made = send_agents(loop, spec_, id_, false);
    if (!made.ok()) return Refusal{kNoHostYet, made.status().message()};
    hosts_ = std::move(*made);
    const bool all = coming.run(*hosts_);
    if (coming.over()) return coming.over();
    if (!all) return Refusal{kNoHostYet, {}};  // the reasons have been printed
    const Inventory inventory = query_inventories(spec_, here_, *hosts_);
    for (std::size_t i = 0; i < hosts_->size(); ++i) {
      if (!hosts_->is_up(i)) return Refusal{kNoHostYet, {}};  // the reason has been printed
    }
    auto resolved = resolve(spec_, inventory);
    if (auto* refusal = std::get_if<Refusal>(&resolved)) return std::move(*refusal);
    job_ = std::move(std::get<ResolvedJob>(resolved));
    show_placement(spec_, inventory.allocation, job_);
    if (spec_.do_not_launch) return Refusal{0, ""};
    return prepare_world(&coming, &loop);
  }

  // Prepares the World of ranks that join.
  std::optional<Refusal> prepare_world(BringUp* coming, boost::asio::io_context* loop = nullptr) {
    const auto refuse = [this](const base::Status& why) {
      return Refusal{refused(spec_.compat), why.message()};
    };
    const std::size_t hosts = std::max<std::size_t>(job_.hosts.size(), 1);
    if (spec_.ps_hosts > hosts) {
      return refuse(base::invalid_argument(fmt::format(
          "--ps-hosts {}: the job has {}", spec_.ps_hosts, base::counted(hosts, "host"))));
    }
    base::Result<WorldStart> world = WorldStart{{}, spec_.seed, spec_.shards};
    if (!has_roles(spec_) || spec_.ps_memory != 0)
      world = prepare_checkpoints(spec_, job_.members.shards, id_, hosts_ != nullptr, locks_);
    if (!world.ok()) return refuse(world.status());
    world_ = std::move(*world);
    if (spec_.ps_memory != 0) {
      tables_ = std::exchange(world_, {{}, spec_.seed, spec_.shards});
      if (tables_.checkpoints.resume && !spec_.quiet) fail(loads(tables_.checkpoints), 0);
    }
    if (hosts_) {
      const base::Status newest =
          start_from_newest_of_hosts(*loop, *hosts_, spec_, *coming, &world_);
      if (coming->over()) return coming->over();
      if (!newest.ok()) return refuse(newest);
      if (world_.checkpoints.resume && !spec_.quiet) fail(writer::resumes(world_.checkpoints), 0);
    }
    for (process::App& app : job_.apps) add_world_variables(spec_, world_, app.environment);
    processes_.apps = job_.apps;
    return std::nullopt;
  }

  // The agents serve the World of ranks that join: on several hosts always, on one if an option is
  // about it. Else such ranks serve themselves. Not for a job of roles, nor where this host has no
  // folder for the job.
  [[nodiscard]] bool serves_world() const {
    return !has_roles(spec_) && announced_ && (hosts_ || !spec_.world_options.empty());
  }

  // Reserves the ports of all roles before any member starts, because members get the addresses of
  // all others.
  base::Status hold_ports() {
    REGROUP_ASSIGN_OR_RETURN(const auto wanted,
                             ports_wanted(spec_.roles, job_.host_of, job_.hosts.size()));
    REGROUP_ASSIGN_OR_RETURN(held_, job::hold_ports(wanted.at(0), ""));
    std::vector<agent::InventoryRequest> orders;
    for (std::size_t i = 1; i < wanted.size(); ++i) orders.push_back({false, "", wanted.at(i)});
    std::vector<std::vector<std::uint16_t>> numbers{held_.numbers};
    std::vector<std::string> addresses{hosts_->own_address()};
    std::size_t other = 0;
    for (const auto& answer : hosts_->query_inventory(orders)) {
      const std::size_t count = orders[other].ports.size();
      addresses.push_back(hosts_->address(other++));
      numbers.emplace_back();
      if (count == 0) continue;  // no member runs there
      if (!answer.ok()) return answer.status();
      auto ports = ports_from_json(*answer);
      if (!ports.ok() || ports->size() != count)
        return base::data_loss(fmt::format("host {}: malformed answer: expected its reserved ports",
                                           hosts_->name(other - 1)));
      numbers.back() = std::move(*ports);
    }
    cluster_.roles = spec_.roles;
    give_ports(cluster_, job_.host_of, numbers, addresses);
    return {};
  }

  // Sets up this process, and the agents of the other hosts.
  base::Status set_up(const process::HeldPort& port) {
    processes_.master.port = port.port;
    if (spec_.ps_memory != 0 && !announced_)
      return base::unavailable("--ps-memory: this host has no folder for the job's sockets");
    if (serves_world())
      processes_.world_socket = announced_->files->agent_socket();
    else if (announced_ && !has_roles(spec_))
      processes_.exits_file = announced_->files->exits();
    return hosts_ ? set_up_hosts() : base::Status();
  }

  // MASTER_ADDR is the host of rank 0.
  base::Status set_up_hosts() {
    if (has_roles(spec_)) REGROUP_RETURN_IF_ERROR(hold_ports());
    const std::uint32_t first = job_.host_of.empty() ? 0 : job_.host_of[0];
    processes_.master.address = first == 0 ? hosts_->own_address() : hosts_->address(first - 1);
    if (first != 0) processes_.master.port = hosts_->facts(first - 1).port;
    const bool reads_here = job_.reads_input(spec_.stdin_to, 0);
    if (!reads_here) processes_.stdin_to.to = spec::StdinRequest::To::kNone;
    bool shared = false;
    std::vector<agent::Setup> setups;
    for (std::uint32_t host = 1; host < job_.hosts.size(); ++host) {
      agent::Setup setup = common_setup(spec_);
      setup.host = host;
      setup.name = job_.hosts[host].name;
      const bool reads = job_.reads_input(spec_.stdin_to, host);
      if (!reads) setup.stdin_to.to = spec::StdinRequest::To::kNone;
      shared = shared || (reads_here && reads);
      setup.services = true;
      if (serves_world())
        setup.elastic = elastic_setup(spec_, rank_slots(job_.host_of, host), world_);
      setup.usage = announced_ || !spec_.usage_log.empty();
      setup.master = processes_.master;
      setups.push_back(std::move(setup));
    }
    processes_.stdin_to.own = shared;
    return hosts_->set_up(setups, shared);
  }

  std::unique_ptr<agent::AgentJob> make_job(agent::Agent& self) {
    if (!has_roles(spec_)) {
      FixedSizeOptions fixed = fixed_size_options();
      if (serves_world()) {
        fixed.world = [this, hosts = hosts_.get()](agent::Agent& agent, agent::OtherHosts*) {
          return std::make_unique<RankWorld>(agent, world_options(), hosts);
        };
      }
      return std::make_unique<FixedSizeJob>(self, std::move(fixed), std::move(hosts_));
    }
    RoleJobOptions options = role_job_options();
    return std::make_unique<RoleJob>(self, std::move(options), std::move(hosts_), std::move(held_));
  }

  RankWorldOptions world_options() {
    RankWorldOptions out = rank_world_options(spec_, id_, announced_->files->agent_socket(),
                                              {job_.host_of.begin(), job_.host_of.end()}, world_);
    out.agent.host = job_.hosts[0].name;
    return out;
  }

  FixedSizeOptions fixed_size_options() {
    const bool limited = !spec_.oversubscribe && spec_.compat == spec::Compat::kOpenMpi;
    const spec::MapBy::Kind map = spec_.mapping.map.kind;
    const bool listed = !spec_.mapping.cpu_set.empty() || map == spec::MapBy::Kind::kCpuList;
    // MPI_Comm_spawn gives its ranks the cores that are left; over several hosts they are not
    // bound.
    const placement::PlacedJob bindable = listed || hosts_ ? job_.placed : job_.placed.with_spare();
    return {.counts = job_.counts,
            .hosts = job_.hosts,
            .host_of = job_.host_of,
            .compat = spec_.compat,
            .fault_tolerant = spec_.ulfm || spec_.keep_going,
            .quiet = spec_.quiet,
            .helper = helper_options(spec_, id_),
            .cores = bindable.cores(),
            .bindings = bindable.bindings(),
            .threads = job_.threads,
            .environments = job_.placed.environments,
            .most = limited ? job_.slots : 0,
            .term_grace = spec_.term_grace};
  }

  RoleJobOptions role_job_options() {
    RoleJobOptions out;
    out.name = spec_.job_name.empty() ? id_ : spec_.job_name;
    out.roles = spec_.roles;
    out.restart.whole_job = spec_.restart_policy == spec::RestartPolicy::kRestart;
    if (spec_.max_restarts) out.restart.max_restarts = *spec_.max_restarts;
    out.term_grace = spec_.term_grace;
    out.cores = job_.placed.cores();
    out.bindings = job_.placed.bindings();
    out.environments = job_.placed.environments;
    out.hosts = job_.hosts;
    out.host_of = job_.host_of;
    out.ports = std::move(cluster_.members);
    out.coordinator_port = cluster_.coordinator_port;
    if (announced_) out.kill_socket = announced_->files->kill_socket();
    out.quiet = spec_.quiet;
    out.helper = helper_options(spec_, id_);
    if (spec_.ps_memory != 0) out.parameter_server = parameter_server_options();
    if (spec_.ps_hosts > 1) add_other_stores(out);
    out.replicas = spec_.ps_replicas;
    return out;
  }

  // Called before the job gets the hosts.
  void add_other_stores(RoleJobOptions& out) {
    out.store_addresses.push_back(hosts_->own_address());
    for (std::size_t i = 0; i + 1 < spec_.ps_hosts; ++i) {
      agent::RemoteNode* const node = &hosts_->remote(i);
      out.store_addresses.push_back(hosts_->address(i));
      out.other_stores.push_back(
          {job_.hosts[i + 1].name,
           [node](const agent::StartStore& order, auto started, auto failed) {
             node->start_store(order, std::move(started), std::move(failed));
           },
           [node](agent::QueryStore query, auto then) {
             node->query_store(query, std::move(then));
           }});
    }
  }

  ParameterServerOptions parameter_server_options() {
    std::optional<TableCheckpointOptions> checkpoints;
    if (!tables_.checkpoints.directory.empty()) {
      checkpoints = {.plan = tables_.checkpoints,
                     .period = std::chrono::seconds(tables_.checkpoints.every),
                     .program = writer::persist_program(),
                     .memory = {},
                     .descriptors = {},
                     .quiet = spec_.quiet};
    }
    return {.program = process::find_helper("regroup-ps"),
            .environment = spec_.environment,
            .memory_socket = announced_->files->ps(),
            .status_socket = announced_->files->ps_status(),
            .resize_socket = announced_->files->ps_resize(),
            .host_name = job_.hosts.empty() ? "" : job_.hosts[0].name,
            .host_address = hosts_ ? hosts_->own_address() : "",
            .seed = tables_.seed,
            .bytes = spec_.ps_memory,
            .store = 0,
            .stores = spec_.ps_hosts,
            .servers = spec_.ps_servers,
            .most_servers = spec_.ps_most_servers,
            .hang_timeout = spec_.hang.timeout,
            .checkpoints = std::move(checkpoints)};
  }

  const spec::JobSpec& spec_;
  const alloc::Allocation& here_;
  process::HeldLocks* const locks_;
  process::ProcessTableOptions processes_;
  std::string id_;  // of the job
  ResolvedJob job_;
  WorldStart world_;
  WorldStart tables_;                    // what a parameter server starts from
  std::unique_ptr<agent::Hosts> hosts_;  // null: there are no others; later the job's own
  std::optional<FixedJob> announced_;  // the guardian may die: this process removes the files, too
  Cluster cluster_;                    // of roles
  HeldPorts held_;                     // the ports of this host
};

}  // namespace

int launch_fixed(const spec::JobSpec& spec, const alloc::Allocation& here,
                 std::optional<ResolvedJob> resolved) {
  if (!resolved) {
    if (const std::string ignored = unheeded_options(spec); !ignored.empty()) fail(ignored, 0);
  }
  process::HeldLocks locks;
  FixedLaunch launch(spec, here, &locks);
  if (resolved) {
    if (const auto refusal = launch.prepare(std::move(*resolved)))
      return fail(refusal->message, refusal->exit_status);
  }
  const auto folder = runtime_folder(spec.environment);
  // The agent makes them; it may be killed.
  const HeldJobFiles files(folder.ok() ? JobFiles{*folder + "/" + launch.id()} : JobFiles());
  return agent::Guardian(
             [&](base::Fd guardian) {
               boost::asio::io_context loop(1);
               return FixedLaunch(std::move(launch)).run(loop, std::move(guardian));
             },
             nullptr, {launch.record(), {}, spec.quiet}, forwarded_signals(spec),
             notice_signals(spec))
      .run();
}

}  // namespace regroup::job
