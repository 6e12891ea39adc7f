// The agent runs under a guardian, as on the controller's host, so that its members end with it.
#include "launcher/cli/node_agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <utility>

#include "launcher/agent/guardian.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/node_agent.h"
#include "launcher/agent/remote_script.h"
#include "launcher/alloc/allocator.h"
#include "launcher/cli/options.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/job/host_setup.h"
#include "launcher/job/host_store.h"
#include "launcher/job/job_files.h"
#include "launcher/job/own_checkpoints.h"
#include "launcher/job/port_pool.h"
#include "launcher/job/start.h"
#include "launcher/placement/host_inventory.h"
#include "launcher/process/environment.h"
#include "launcher/transport/job_secret.h"

namespace regroup::cli {
namespace {

constexpr std::chrono::seconds kStartSecretLimit{10};  // for the secret on standard input

// Without this service the other members pause while a joiner gets its copy.
std::unique_ptr<catchup::TransferService> make_transfer_service(
    agent::Agent& agent, const agent::NodeAgentOptions& options) {
  auto context = transport::TlsContext::make(options.job, options.node, options.secret);
  if (context.ok()) return std::make_unique<catchup::TransferService>(agent.loop(), *context);
  agent.say("this host cannot serve state to joining members: " + context.status().message());
  return nullptr;
}

agent::MembershipFactory make_membership(const agent::NodeAgentOptions& options) {
  return [options](agent::Agent& agent, const agent::Setup& setup,
                   std::function<void(const proto::Message&)> send) {
    auto service =
        setup.elastic->kept_results > 0 ? make_transfer_service(agent, options) : nullptr;
    job::ElasticAgentOptions elastic = job::elastic_agent_options(*setup.elastic);
    elastic.core.node = options.node;
    elastic.socket = options.agent_socket;
    elastic.quiet = setup.quiet;
    elastic.slots = options.slots;
    elastic.transfer_service = std::move(service);
    elastic.host = setup.name;
    elastic.fixed = agent::serves_ranks(setup);
    return std::make_unique<job::ElasticAgent>(agent, std::move(elastic), std::move(send));
  };
}

// Reserves ports on all addresses, because members of other hosts connect to them.
void hold_ports(const std::vector<std::uint16_t>& wanted, agent::InventoryReply& answer) {
  static job::HeldPorts held;  // as long as this process
  auto ports = job::hold_ports(wanted, "");
  answer.status = ports.status();
  if (!ports.ok()) return;
  held = std::move(*ports);
  answer.host = job::ports_to_json(held.numbers);
}

// Takes the inventory by which the controller places members.
void answer_inventory(const alloc::Host& host, const spec::Environment& environment,
                      const std::string& cache_folder, const std::string& job,
                      const agent::InventoryRequest& order, agent::InventoryReply& answer) {
  if (!order.ports.empty()) return hold_ports(order.ports, answer);
  auto inventory = placement::take_inventory(
      {order.devices, order.topology, {order.claims.name, job, order.claims.outer}}, host.cores,
      environment, cache_folder);
  answer.status = inventory.status();
  if (!inventory.ok()) return;
  inventory->quota = host.quota;
  answer.host = placement::inventory_to_json(*inventory);
}

bool read_number(const std::string& text, proto::NodeId& out) {
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, out);
  return error == std::errc() && end == last;
}

}  // namespace

int run_node_agent(const std::vector<std::string>& args) {
  agent::NodeAgentOptions options;
  if (args.size() < 4)
    return job::fail(
        fmt::format("{}: internal command, which regroup runs on other hosts", kNodeAgent), 2);
  // Checks the build first: another version could misunderstand the messages.
  const std::string theirs =
      args.size() > 4 ? agent::printable(args[4]) : "an unknown, older version";
  if (theirs != job::build()) {
    fmt::print(stderr, "version mismatch: regroup there is {}, here it is {}\n", job::build(),
               theirs);
    return agent::kSaidWhy;
  }
  if (!read_number(args[1], options.node) || !read_number(args[2], options.parent))
    return job::fail(
        fmt::format("{}: expected two node numbers, got {} and {}", kNodeAgent, args[1], args[2]),
        2);
  auto secret = transport::JobSecret::read(STDIN_FILENO, kStartSecretLimit);
  if (!secret.ok()) return job::fail(secret.status().message(), 1);
  auto allocation = alloc::make_this_machine()->allocation();
  if (!allocation.ok()) return job::fail(allocation.status().message(), 1);
  options.job = args[0];
  options.endpoints = args[3];
  options.build = job::build();
  options.slots = allocation->slots();
  options.environment = read_environment();
  options.secret = std::move(*secret);
  auto folder = job::runtime_folder(options.environment);
  if (!folder.ok()) return job::fail(folder.status().message(), 1);  // a host that is full
  options.folder = std::move(*folder);
  options.read_gpu = job::gpu_reader();
  options.inventory = [host = allocation->hosts.at(0), environment = options.environment,
                       folder = options.folder, job = options.job](
                          const agent::InventoryRequest& order, agent::InventoryReply& answer) {
    answer_inventory(host, environment, folder, job, order, answer);
  };
  options.local_checkpoints = job::local_checkpoint_query();
  options.record =
      job::record_of(options.environment, fmt::format("{}-{}", options.job, options.node));
  // Not in a folder of its own, which would look like a job whose coordinator runs on this host.
  options.agent_socket = fmt::format("{}/{}-{}.agent", options.folder, options.job, options.node);
  const std::string store = fmt::format("{}/{}-{}.ps", options.folder, options.job, options.node);
  options.stores =
      job::host_stores({process::find_helper("regroup-ps"), process::find_helper("regroup-persist"),
                        options.environment, store});
  const int status =
      agent::Guardian(
          [&](base::Fd guardian) {
            return agent::run_node_agent(options, std::move(guardian), make_membership(options));
          },
          nullptr, {options.record, {}, true}, {SIGTERM})
          .run();
  ::unlink(options.agent_socket.c_str());
  ::unlink(store.c_str());
  return status;
}

}  // namespace regroup::cli
