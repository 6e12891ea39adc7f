// The agents start first and send the inventories of their hosts, which decide how many members
// there are, where they run and to what they are bound.
#include "launcher/job/run_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/job/fixed_job.h"
#include "launcher/job/fixed_size_job.h"
#include "launcher/job/host_setup.h"
#include "launcher/job/job_files.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/own_checkpoints.h"
#include "launcher/job/rank_world.h"
#include "launcher/job/role_job.h"
#include "launcher/job/start.h"
#include "launcher/placement/cluster_view.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

constexpr int kNoHostYet = 1;  // an agent could not be started

// Host 0 is this one.
struct Layout {
  std::vector<std::uint32_t> host_of;  // by rank
  std::vector<JobHost> hosts;
};

// Runs a fixed-size job on several hosts, in the process of this host's agent.
class FixedSizeController {
 public:
  FixedSizeController(const spec::Options& options, const alloc::Allocation& here,
                      process::ProcessTableOptions processes)
      : options_(options), here_(here), processes_(std::move(processes)), job_(processes_.job) {}

  // Returns the exit status of the process. The guardian has the exit status of the job.
  int run(base::Fd guardian) {
    BringUp bring_up(options_, guardian);
    auto refused = prepare(bring_up);
    if (refused) return refuse_job(loop_, *refused, std::move(guardian));
    auto port = process::hold_port();
    if (!port.ok())
      return refuse_job(loop_, {kNoHostYet, port.status().message()}, std::move(guardian));
    announced_ = announce_job(options_.environment, job_,
                              static_cast<std::uint32_t>(layout_.host_of.size()));
    if (const base::Status status = set_up(*port); !status.ok())
      return refuse_job(loop_, {kNoHostYet, status.message()}, std::move(guardian));
    agent::AgentOptions agent = agent_options(options_, std::move(processes_), std::move(*port));
    agent.spent = bring_up.spent();
    if (announced_) agent.usage.status_file = announced_->files->usage();
    agent::Agent self(loop_, std::move(agent), std::move(guardian),
                      [this](agent::Agent& self) { return make_job(self); });
    const auto watch = watch_notices(options_, self);
    return self.run();
  }

 private:
  std::optional<Refusal> prepare(BringUp& coming) {
    if (auto refused = bring_up(coming)) return refused;
    if (auto refused = query_hosts()) return refused;
    const auto asked = placement::members_of(options_, cluster_hosts_);
    if (!asked.ok()) return Refusal{refused(options_.compat), asked.status().message()};
    auto planned = plan_job(options_, *asked, allocation_.slots());
    if (auto* refused = std::get_if<Refusal>(&planned)) return std::move(*refused);
    plan_ = std::move(std::get<JobPlan>(planned));
    if (auto refused = prepare_world(coming)) return refused;
    processes_.apps = plan_.apps;
    return place();
  }

  // Prepares the World of ranks that join.
  std::optional<Refusal> prepare_world(BringUp& coming) {
    const bool roles = has_roles(options_);
    base::Result<WorldStart> world = WorldStart{{}, options_.seed, options_.shards};
    if (!roles) world = prepare_checkpoints(options_, plan_.members.shards, job_, true, &locks_);
    if (!world.ok()) return Refusal{refused(options_.compat), world.status().message()};
    world_ = std::move(*world);
    writer::CheckpointPlan& checkpoints = world_.checkpoints;
    if (!checkpoints.shared.empty()) {
      take_newest_of_hosts(
          loop_, *hosts_, [&coming] { return coming.look(); },
          [](const std::string& text) { fail(text, 0); }, &checkpoints);
      if (coming.over()) return coming.over();
      if (checkpoints.resume) {
        const base::Status same = check_resumed_options(options_, *checkpoints.resume);
        if (!same.ok()) return Refusal{refused(options_.compat), same.message()};
        world_.seed = checkpoints.seed, world_.shards = checkpoints.shards;
      }
    }
    if (checkpoints.resume && !options_.quiet) fail(writer::resumes(checkpoints), 0);
    for (process::App& app : plan_.apps) add_world_variables(options_, world_, app.environment);
    return std::nullopt;
  }

  // False for a job of roles, and where this host has no folder for the job.
  [[nodiscard]] bool serves_world() const { return !has_roles(options_) && announced_; }

  std::optional<Refusal> bring_up(BringUp& coming) {
    auto made = send_agents(loop_, options_, processes_.job, false);
    if (!made.ok()) return Refusal{kNoHostYet, made.status().message()};
    hosts_ = std::move(*made);
    const bool all = coming.run(*hosts_);
    if (coming.over()) return coming.over();
    return all ? std::nullopt : std::optional(Refusal{kNoHostYet, {}});
  }

  // Requests the inventories of the hosts if the placement needs them. A host without a number of
  // slots gets as many as it has cores.
  std::optional<Refusal> query_hosts() {
    const auto order = placement::inventory_options(options_);
    std::vector<base::Result<std::string>> answers;
    if (order)
      answers = hosts_->query_inventory(std::vector<agent::InventoryRequest>(
          hosts_->size(), {order->devices, order->topology, {}, order->claims}));
    const auto folder = runtime_folder(options_.environment);
    allocation_.hosts.clear();
    std::size_t other = 0;
    for (const spec::HostRequest& host : options_.hosts) {
      const std::uint32_t cores = host.here ? here_.slots() : hosts_->facts(other).slots;
      const std::uint32_t slots = host.slots != 0 ? host.slots : cores;
      cores_.push_back(cores);
      allocation_.hosts.push_back({host.name, slots, {}});
      base::Result<placement::HostInventory> inventory = placement::HostInventory();
      if (order && host.here)
        inventory = placement::take_inventory(*order, here_.hosts.at(0).cores, options_.environment,
                                              folder.ok() ? *folder : "");
      if (host.here && inventory.ok()) inventory->quota = here_.hosts.at(0).quota;
      if (order && !host.here) {
        auto& answer = answers.at(other);
        inventory = answer.ok() ? placement::inventory_from_json(*answer) : answer.status();
      }
      if (inventory.ok()) placement::keep_granted(host, *inventory);
      if (inventory.ok()) allocation_.hosts.back().cores = inventory->cpus;
      cluster_hosts_.push_back({host.name, slots, host.max_slots, std::move(inventory)});
      if (!host.here) ++other;
    }
    for (std::size_t i = 0; i < hosts_->size(); ++i) {
      if (!hosts_->is_up(i)) return Refusal{kNoHostYet, {}};  // the reason has been printed
    }
    return std::nullopt;
  }

  std::optional<Refusal> place() {
    auto placed = placement::place_on_cluster(
        options_, std::move(cluster_hosts_),
        placement::job_request(options_, plan_.members.counts, needs_of(options_)));
    if (!placed.ok()) return Refusal{placing_failed(options_), placed.status().message()};
    placed_ = std::move(*placed);
    for (const std::string& warning : placed_.warnings) {
      if (!options_.quiet) fail(warning, 0);
    }
    placement::print_display(options_, allocation_, placed_, plan_.members.counts);
    layout_.hosts = {{here_.hosts.at(0).name, 0}};
    std::vector<std::uint32_t> numbers;  // of options_.hosts, in the job
    for (std::size_t i = 0; i < options_.hosts.size(); ++i) {
      const alloc::Host& host = allocation_.hosts[i];
      const bool here = options_.hosts[i].here;
      numbers.push_back(here ? 0 : static_cast<std::uint32_t>(layout_.hosts.size()));
      if (here) layout_.hosts[0].slots = host.slots;
      if (!here) layout_.hosts.push_back({host.name, host.slots});
    }
    for (const std::uint32_t index : placed_.placement.hosts)
      layout_.host_of.push_back(numbers[index]);
    return options_.do_not_launch ? std::optional(Refusal{0, ""}) : std::nullopt;
  }

  // Reserves the ports of all roles before any member starts, because members get the addresses of
  // all others.
  base::Status hold_ports() {
    REGROUP_ASSIGN_OR_RETURN(const auto wanted,
                             ports_wanted(options_.roles, layout_.host_of, layout_.hosts.size()));
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
    cluster_.roles = options_.roles;
    give_ports(cluster_, layout_.host_of, numbers, addresses);
    return {};
  }

  // MASTER_ADDR is the host of rank 0.
  base::Status set_up(const process::HeldPort& port) {
    if (has_roles(options_)) REGROUP_RETURN_IF_ERROR(hold_ports());
    const std::uint32_t first = layout_.host_of.empty() ? 0 : layout_.host_of[0];
    if (first == 0) processes_.master = {hosts_->own_address(), port.port};
    if (first != 0) processes_.master = {hosts_->address(first - 1), hosts_->facts(first - 1).port};
    if (!reads_input(0)) processes_.stdin_to.to = spec::StdinRequest::To::kNone;
    if (serves_world()) processes_.world_socket = announced_->files->agent_socket();
    std::vector<agent::Setup> setups;
    for (std::uint32_t host = 1; host < layout_.hosts.size(); ++host) {
      agent::Setup setup = common_setup(options_);
      setup.host = host;
      setup.name = layout_.hosts[host].name;
      if (!reads_input(host)) setup.stdin_to.to = spec::StdinRequest::To::kNone;
      setup.services = true;
      const auto ranks = static_cast<std::uint32_t>(std::ranges::count(layout_.host_of, host));
      if (serves_world())
        setup.elastic = elastic_setup(
            options_, std::clamp<std::uint32_t>(ranks, 1, proto::kMaxSlots - 1), world_);
      setup.usage = announced_ || !options_.usage_log.empty();
      setup.master = processes_.master;
      setups.push_back(std::move(setup));
    }
    const auto& of = layout_.host_of;
    const bool shared = reads_input(0) && std::ranges::any_of(of, [this](std::uint32_t host) {
                          return host != 0 && reads_input(host);
                        });
    processes_.stdin_to.own = shared;
    return hosts_->set_up(setups, shared);
  }

  // True: a rank of that host gets standard input.
  [[nodiscard]] bool reads_input(std::uint32_t host) const {
    const spec::StdinRequest& input = options_.stdin_to;
    const auto& of = layout_.host_of;
    if (input.to == spec::StdinRequest::To::kRank)
      return input.rank < of.size() && of[input.rank] == host;
    return input.to == spec::StdinRequest::To::kAll && std::ranges::find(of, host) != of.end();
  }

  std::unique_ptr<agent::AgentJob> make_job(agent::Agent& self) {
    if (!has_roles(options_)) {
      FixedSizeOptions fixed = fixed_size_options();
      if (serves_world()) fixed.world = world(*hosts_);
      return std::make_unique<FixedSizeJob>(self, std::move(fixed), std::move(hosts_));
    }
    RoleJobOptions roles = role_options(options_, job_, placed_);
    roles.hosts = layout_.hosts;
    roles.host_of = layout_.host_of;
    roles.ports = std::move(cluster_.members);
    roles.coordinator_port = cluster_.coordinator_port;
    return std::make_unique<RoleJob>(self, std::move(roles), std::move(hosts_), std::move(held_));
  }

  std::function<std::unique_ptr<agent::MembershipJob>(agent::Agent&, agent::OtherHosts*)> world(
      agent::Hosts& hosts) {
    return [this, &hosts](agent::Agent& agent, agent::OtherHosts*) {
      RankWorldOptions world =
          rank_world_options(options_, job_, announced_->files->agent_socket(),
                             {layout_.host_of.begin(), layout_.host_of.end()}, world_);
      world.agent.host = layout_.hosts[0].name;
      return std::make_unique<RankWorld>(agent, std::move(world), &hosts);
    };
  }

  FixedSizeOptions fixed_size_options() {
    FixedSizeOptions fixed;
    fixed.counts = plan_.members.counts;
    fixed.hosts = layout_.hosts;
    fixed.host_of = layout_.host_of;
    fixed.compat = options_.compat;
    fixed.fault_tolerant = options_.ulfm || options_.keep_going;
    fixed.quiet = options_.quiet;
    fixed.cores = placed_.cores();
    fixed.bindings = placed_.bindings();
    fixed.environments = placed_.environments;
    std::vector<std::uint32_t> slots;
    for (std::size_t i = 0; i < cores_.size();
         ++i)  // slots that were said may be more than a host has
      slots.push_back(std::min(allocation_.hosts[i].slots, cores_[i]));
    fixed.threads = placed_.threads(slots);
    fixed.helper = helper_options(options_, job_);
    const bool limited = !options_.oversubscribe && options_.compat == spec::Compat::kOpenMpi;
    fixed.most = limited ? allocation_.slots() : 0;
    fixed.term_grace = options_.term_grace;
    return fixed;
  }

  const spec::Options& options_;
  const alloc::Allocation here_;
  process::ProcessTableOptions processes_;
  const std::string job_;         // its id
  alloc::Allocation allocation_;  // its hosts as options_.hosts, each with its slots for this job
  boost::asio::io_context loop_{1};
  std::unique_ptr<agent::Hosts> hosts_;
  JobPlan plan_;
  std::vector<std::uint32_t> cores_;  // as options_.hosts: what each has, its quota heeded
  std::vector<placement::ClusterHost> cluster_hosts_;  // as options_.hosts
  placement::PlacedJob placed_;
  Layout layout_;
  std::optional<FixedJob> announced_;  // the guardian may die: this process removes the files, too
  Cluster cluster_;                    // of roles
  HeldPorts held_;                     // the ports of this host
  WorldStart world_;
  process::HeldLocks locks_;  // of the directories of its checkpoints
};

}  // namespace

int run_on_hosts(const spec::Options& options, const alloc::Allocation& here) {
  if (const std::string ignored = unheeded_options(options); !ignored.empty()) fail(ignored, 0);
  process::ProcessTableOptions processes = process_table_options(options, {});
  const auto record = processes.record;
  const auto folder = runtime_folder(options.environment);
  // The agent makes them; it may be killed.
  const HeldJobFiles files(folder.ok() ? JobFiles{*folder + "/" + processes.job} : JobFiles());
  return agent::Guardian(
             [&](base::Fd guardian) {
               return FixedSizeController(options, here, std::move(processes))
                   .run(std::move(guardian));
             },
             nullptr, {record, {}, options.quiet}, forwarded_signals(options),
             notice_signals(options))
      .run();
}

}  // namespace regroup::job
