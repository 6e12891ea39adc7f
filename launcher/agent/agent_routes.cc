// The order of the checks in accept(): what is late is ignored before anything is refused, and a
// number is accepted before the message is decoded, so that a message that cannot be decoded is not
// retransmitted for ever.
#include "launcher/agent/agent_routes.h"

#include <utility>
#include <variant>

#include "launcher/agent/wire.h"

namespace regroup::agent {

void AgentRoutes::add_child(proto::NodeId node) {
  router_.tree().add(node, kController);
  agents_.try_emplace(node);
}

bool AgentRoutes::add_below(proto::NodeId node, proto::NodeId parent) {
  if (!router_.tree().add(node, parent)) return false;
  agents_[node].session = std::make_unique<ReliableSession>();
  return true;
}

std::optional<proto::NodeId> AgentRoutes::agent_above(proto::NodeId node) const {
  const auto parent = tree().parent(node);
  return parent && *parent != kController ? parent : std::nullopt;
}

std::optional<std::uint64_t> AgentRoutes::number(proto::NodeId node,
                                                 const ReliableSession::Bytes& message,
                                                 bool answered) {
  const auto found = agents_.find(node);
  if (found == agents_.end() || !found->second.session) return 0;
  ReliableSession& session = *found->second.session;
  if (session.overfull()) return std::nullopt;
  return session.enqueue(message, answered);
}

AgentRoutes::Arrival AgentRoutes::accept(proto::NodeId child, const Relayed& relayed) {
  using Verdict = Arrival::Verdict;
  if (relayed.nodes.size() != 1) return {Verdict::kRefuse, child};  // from below, one has sent it
  const proto::NodeId node = relayed.nodes[0];
  const std::uint64_t number = relayed.numbers.empty() ? 0 : relayed.numbers[0];
  const auto found = agents_.find(node);
  if (found == agents_.end() || !tree().has(node)) return {};  // it has been given up
  const Agent& agent = found->second;
  if (!tree().within(node, child)) {
    if (agent.path_changed) return {};  // it retransmits through its new parent
    return {Verdict::kRefuse, child};
  }
  if (!agent.session || (node == child && number == 0)) return {Verdict::kRefuse, child};
  if (number != 0 && !agent.session->accept(number, relayed.message.size())) return {};
  auto message = decode(relayed.message);
  if (!message.ok()) return {Verdict::kRefuse, node};
  if (number == 0 && !std::holds_alternative<Ack>(*message)) return {Verdict::kRefuse, node};
  return {Verdict::kTake, node, std::move(*message), agent.session->ack_due()};
}

bool AgentRoutes::acknowledge(proto::NodeId node, std::uint64_t number) {
  const auto found = agents_.find(node);
  if (found == agents_.end() || !found->second.session) return false;
  found->second.session->acknowledge(number);
  return true;
}

std::vector<proto::NodeId> AgentRoutes::change_path(proto::NodeId node) {
  std::vector<proto::NodeId> all = tree().below(node);
  for (const proto::NodeId each : all) {
    if (const auto found = agents_.find(each); found != agents_.end())
      found->second.path_changed = true;
  }
  return all;
}

bool AgentRoutes::path_has_changed(proto::NodeId node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second.path_changed;
}

std::vector<proto::NodeId> AgentRoutes::adopt(proto::NodeId node) {
  router_.tree().move(node, kController);
  return change_path(node);
}

const ReliableSession* AgentRoutes::session(proto::NodeId node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() ? found->second.session.get() : nullptr;
}

}  // namespace regroup::agent
