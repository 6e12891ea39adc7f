// The other job, which runs as the same user, chooses the program, but not the hosts: an order for
// a host outside the grant is refused.
#include "launcher/lease/leased_agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "launcher/agent/process_spawner.h"
#include "launcher/lease/grant_lines.h"

namespace regroup::lease {
namespace {

constexpr std::chrono::seconds kSecretLimit{5};
constexpr std::chrono::seconds kAgentUp{20};  // long, since the allocator may queue the start

}  // namespace

LeasedAgents::LeasedAgents(boost::asio::io_context& loop, spec::Grant grant,
                           spec::Environment environment,
                           std::function<void(const std::string&)> send)
    : loop_(loop),
      grant_(std::move(grant)),
      environment_(std::move(environment)),
      send_(std::move(send)) {}

base::Result<bool> LeasedAgents::on_line(std::string_view line, int socket) {
  if (const auto end = parse_agent_end(line); end.ok()) {
    const auto agent = agents_.find(end->node);
    if (agent != agents_.end()) agent->second->end(end->node);
    return true;
  }
  auto order = parse_agent_start(line);
  if (!order.ok()) return false;
  if (order->secret) {
    REGROUP_ASSIGN_OR_RETURN(auto secret, transport::JobSecret::read(socket, kSecretLimit));
    if (!secret_) secret_ = std::move(secret);
  }
  start(std::move(order->order));
  return true;
}

void LeasedAgents::start(agent::AgentOrder order) {
  const proto::NodeId node = order.node;
  const auto host = std::ranges::find(grant_.hosts, order.host, &spec::HostRequest::name);
  const auto by = host != grant_.hosts.end()
                      ? way(host->here)
                      : base::invalid_argument(order.host + ": not a host of this allocation");
  if (!by.ok()) {
    return send_(
        to_line(AgentNews{.node = node, .what = AgentNews::What::kEnded, .why = by.status()}));
  }
  order.address = host->address;
  agents_[node] = *by;
  (*by)->start(std::move(order));
}

base::Result<agent::Spawner*> LeasedAgents::way(bool here) {
  auto& made = here ? forker_ : commander_;
  if (made) return made.get();
  if (!secret_) return base::internal_error("no secret received from the job");
  using What = AgentNews::What;
  agent::SpawnEvents events{
      .up = [this](
                proto::NodeId node) { send_(to_line(AgentNews{.node = node, .what = What::kUp})); },
      .line =
          [this](proto::NodeId node, const std::string& line) {
            send_(to_line(AgentNews{.node = node, .what = What::kLine, .line = line}));
          },
      .ended =
          [this](proto::NodeId node, const base::Status& why) {
            agents_.erase(node);
            send_(to_line(AgentNews{.node = node, .what = What::kEnded, .why = why}));
          }};
  agent::SpawnOptions options;
  options.environment = environment_;
  options.limit = kAgentUp;
  REGROUP_ASSIGN_OR_RETURN(
      made, here ? agent::make_fork_spawner(loop_, secret_, std::move(events), std::move(options))
                 : agent::make_ssh_spawner(loop_, secret_, std::move(events), std::move(options),
                                           grant_.before, grant_.after));
  return made.get();
}

}  // namespace regroup::lease
