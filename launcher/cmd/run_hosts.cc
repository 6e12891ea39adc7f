// Agents come up first: what their hosts have decides how many members there are and where they run.
#include "launcher/cmd/run_hosts.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "launcher/cmd/host_setup.h"
#include "launcher/cmd/job_plan.h"
#include "launcher/cmd/start.h"
#include "launcher/node/hosts.h"
#include "launcher/place/host_map.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/guardian.h"
#include "launcher/supervise/rigid_job.h"

namespace regroup::cmd {
namespace {

constexpr int kNoHost = 1;  // an agent could not be started

// Host 0 is this one.
struct Placed {
  std::vector<std::uint32_t> host_of;  // by rank
  std::vector<launcher::JobHost> hosts;
};

// In the process of the agent of this host, from before its Agent exists.
class Head {
 public:
  Head(Options options, const launcher::Allocation& here, launcher::CrewOptions crew)
      : options_(std::move(options)), here_(here), crew_(std::move(crew)) {}

  // The exit status of the process; the guardian has been told that of the job.
  int run(core::Fd guardian) {
    auto refused = prepare();
    if (refused) return refuse_job(loop_, *refused, std::move(guardian));
    auto port = launcher::hold_port();
    if (!port.ok()) return refuse_job(loop_, {kNoHost, port.status().message()}, std::move(guardian));
    set_up(*port);
    const launcher::RigidOptions rigid = rigid_options();
    launcher::AgentOptions agent = agent_options(options_, std::move(crew_), std::move(*port));
    return launcher::Agent(loop_, std::move(agent), std::move(guardian),
                           [&](launcher::Agent& self) {
                             return std::make_unique<launcher::RigidJob>(self, rigid, std::move(hosts_));
                           })
        .run();
  }

 private:
  std::optional<Refusal> prepare() {
    if (auto refused = bring_up()) return refused;
    take_slots();
    auto planned = plan_job(options_, allocation_);
    if (auto* refused = std::get_if<Refusal>(&planned)) return std::move(*refused);
    plan_ = std::move(std::get<JobPlan>(planned));
    crew_.apps = plan_.apps;
    return place();
  }

  std::optional<Refusal> bring_up() {
    auto made = send_agents(loop_, options_, crew_.job, false);
    if (!made.ok()) return Refusal{kNoHost, made.status().message()};
    hosts_ = std::move(*made);
    const std::vector<core::Status> failures = hosts_->bring_up();
    if (failures.empty()) return std::nullopt;
    std::string all;
    for (const core::Status& why : failures) all += (all.empty() ? "" : "\nregroup: ") + why.message();
    return Refusal{kNoHost, all};
  }

  // Where nobody said how many a host has, as many as it has cores.
  void take_slots() {
    allocation_.hosts.clear();
    std::size_t other = 0;
    for (launcher::HostRequest& host : options_.hosts) {
      const std::uint32_t cores = host.here ? here_.slots() : hosts_->facts(other).slots;
      if (!host.here) ++other;
      if (host.slots == 0) host.slots = cores;
      allocation_.hosts.push_back({host.name, host.slots, {}});
    }
  }

  std::optional<Refusal> place() {
    launcher::HostMapRequest request;
    request.hosts = options_.hosts;
    request.counts = plan_.counts;
    request.map = options_.mapping.map;
    request.sequence = options_.mapping.sequence;
    request.oversubscribe = options_.oversubscribe;
    for (const launcher::AppRequest& app : options_.apps)
      request.per_host.push_back(app.per_node.value_or(0));
    auto mapped = launcher::map_to_hosts(request);
    if (!mapped.ok()) return Refusal{refused(options_.compat), mapped.status().message()};
    placed_.hosts = {{here_.hosts.at(0).name, 0}};
    std::vector<std::uint32_t> numbers;  // of options_.hosts, in the job
    for (const launcher::HostRequest& host : options_.hosts) {
      numbers.push_back(host.here ? 0 : static_cast<std::uint32_t>(placed_.hosts.size()));
      if (host.here) placed_.hosts[0].slots = host.slots;
      if (!host.here) placed_.hosts.push_back({host.name, host.slots});
    }
    for (const std::uint32_t index : *mapped) placed_.host_of.push_back(numbers[index]);
    return std::nullopt;
  }

  // Rank 0 is met where it runs.
  void set_up(const launcher::HeldPort& port) {
    const std::uint32_t first = placed_.host_of.empty() ? 0 : placed_.host_of[0];
    if (first == 0) crew_.master = {hosts_->own_address(), port.port};
    if (first != 0) crew_.master = {hosts_->address(first - 1), hosts_->facts(first - 1).port};
    const std::uint32_t reader = reader_of_input();
    if (reader != 0) crew_.stdin_to.to = launcher::StdinRequest::To::kNone;
    std::vector<node::Setup> setups;
    for (std::uint32_t host = 1; host < placed_.hosts.size(); ++host) {
      node::Setup setup = common_setup(options_);
      setup.host = host;
      setup.name = placed_.hosts[host].name;
      if (host != reader) setup.stdin_to.to = launcher::StdinRequest::To::kNone;
      setup.services = true;
      setup.master = crew_.master;
      setups.push_back(std::move(setup));
    }
    hosts_->set_up(setups);
  }

  // The host whose rank gets standard input; 0, too, if none does.
  [[nodiscard]] std::uint32_t reader_of_input() const {
    const launcher::StdinRequest& input = options_.stdin_to;
    const bool one = input.to == launcher::StdinRequest::To::kRank && input.rank < placed_.host_of.size();
    return one ? placed_.host_of[input.rank] : 0;
  }

  launcher::RigidOptions rigid_options() {
    launcher::RigidOptions rigid;
    rigid.counts = plan_.counts;
    rigid.hosts = placed_.hosts;
    rigid.host_of = placed_.host_of;
    rigid.compat = options_.compat;
    rigid.fault_tolerant = options_.ulfm || options_.keep_going;
    rigid.quiet = options_.quiet;
    rigid.helper = helper_options(options_, crew_.job);
    const bool limited = !options_.oversubscribe && options_.compat == launcher::Compat::kOpenMpi;
    rigid.most = limited ? slots_for(options_, 0) : 0;
    rigid.term_grace = options_.term_grace;
    return rigid;
  }

  Options options_;
  const launcher::Allocation here_;
  launcher::CrewOptions crew_;
  launcher::Allocation allocation_;
  boost::asio::io_context loop_{1};
  std::unique_ptr<node::Hosts> hosts_;
  JobPlan plan_;
  Placed placed_;
};

}  // namespace

int run_on_hosts(Options options, const launcher::Allocation& here) {
  if (const std::string told = unheeded_options(options); !told.empty()) fail(told, 0);
  launcher::CrewOptions crew = crew_of(options, {});
  const auto record = crew.record;
  const std::vector<int> forwarded = forwarded_signals(options);
  const bool quiet = options.quiet;
  return launcher::Guardian(
             [&](core::Fd guardian) {
               return Head(std::move(options), here, std::move(crew)).run(std::move(guardian));
             },
             nullptr, {record, {}, quiet}, forwarded)
      .run();
}

}  // namespace regroup::cmd
