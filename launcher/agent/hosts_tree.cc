// Forwarding in the tree, loss of agents, and reparenting: an agent of an elastic job that has lost
// its parent connects to the controller, which becomes its parent; both retransmit what is
// unacknowledged.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "base/status.h"
#include "launcher/agent/hosts.h"
#include "launcher/agent/remote_script.h"
#include "launcher/agent/reparenting.h"
#include "launcher/agent/wire.h"
#include "launcher/process/due.h"

namespace regroup::agent {

Hosts::Slot* Hosts::slot_of(proto::NodeId node) {
  const auto index = index_of(node);
  return index ? &slots_[*index] : nullptr;
}

RemoteNode* Hosts::find(proto::NodeId node) {
  const Slot* slot = slot_of(node);
  return slot != nullptr ? slot->node.get() : nullptr;
}

void Hosts::send(proto::NodeId node, const Message& message) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(message));
  const auto number = routes_.number(node, bytes, false);
  if (!number) return refuse(node, "does not acknowledge messages");
  send_encoded(node, *bytes, *number);
}

// Does nothing if the node has no route: numbered messages are retransmitted when it has one again.
void Hosts::send_encoded(proto::NodeId node, const std::vector<std::byte>& bytes,
                         std::uint64_t number) {
  const auto via = routes_.via(node);
  if (via && *via == node && number == 0) return children_->send(node, bytes);
  if (via) batch_.add(*via, node, bytes, number);
}

void Hosts::on_message(proto::NodeId child, const Message& message) {
  if (const auto* gathered = std::get_if<Gathered>(&message)) {
    for (const Relayed& relayed : gathered->messages) on_relayed(child, relayed);
  } else if (const auto* relayed = std::get_if<Relayed>(&message)) {
    on_relayed(child, *relayed);
  } else if (const auto* ack = std::get_if<Ack>(&message)) {
    on_ack(child, *ack);
  } else if (routes_.has_session(child)) {
    refuse(child);  // its messages must be numbered
  } else {
    receive(child, message);
  }
}

void Hosts::on_relayed(proto::NodeId child, const Relayed& relayed) {
  const AgentRoutes::Arrival arrival = routes_.accept(child, relayed);
  const proto::NodeId node = arrival.node;
  using Verdict = AgentRoutes::Arrival::Verdict;
  if (arrival.verdict == Verdict::kRefuse) return refuse(node);
  if (arrival.verdict == Verdict::kIgnore) return;
  if (arrival.ack) send_encoded(node, encode(Ack{*arrival.ack}), 0);
  const auto* ack = std::get_if<Ack>(&*arrival.message);
  ack != nullptr ? on_ack(node, *ack) : receive(node, *arrival.message);
}

void Hosts::on_ack(proto::NodeId node, const Ack& ack) {
  if (!routes_.acknowledge(node, ack.number)) return refuse(node);
  if (ack.action == Ack::Action::kReparent && children_->linked(node)) reparent(node);
}

// Accepts a connection from an agent that is up and still has another parent. The agent's first
// message on the new connection, Ack{kReparent}, then completes the change.
std::optional<std::string> Hosts::orphan(proto::NodeId node) {
  const Slot* slot = slot_of(node);
  const bool ours = slot != nullptr && slot->set_up && routes_.has_session(node) &&
                    routes_.tree().parent(node) != kController &&
                    slot->node->state() == RemoteNode::State::kUp;
  return ours ? std::optional(name(*index_of(node))) : std::nullopt;
}

// Moves `node` with all agents below it. The agents on the former path, if they are alive, drop it
// first, so that none of them answers for it any more.
void Hosts::reparent(proto::NodeId node) {
  if (routes_.tree().parent(node) == kController) return;
  end_agent(node);
  for (const proto::NodeId each : routes_.adopt(node)) {
    slot_of(each)->orphan.reset();
    const ReliableSession& session = *routes_.session(each);
    send_encoded(each, encode(Ack{session.accepted(), Ack::Action::kRetransmit}), 0);
    for (const ReliableSession::Sent& said : session.unacked())
      send_encoded(each, *said.message, said.number);
    on_silent(each, false);
  }
}

// Waits kOrphanWait for an agent whose parent is lost. False: it is lost with its parent.
bool Hosts::await_reparenting(proto::NodeId node, const base::Status& why) {
  Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->set_up || !routes_.has_session(node) || finished_) return false;
  if (slot->node->state() != RemoteNode::State::kUp) return false;
  for (const proto::NodeId each : routes_.change_path(node)) on_silent(each, true);
  routes_.detach(node);
  slot->orphan = std::make_unique<boost::asio::steady_timer>(loop_, kOrphanWait);
  slot->orphan->async_wait([this, node, why](const boost::system::error_code& error) {
    const Slot* waiting = error ? nullptr : slot_of(node);
    if (waiting != nullptr && waiting->orphan && process::is_due(*waiting->orphan))
      give_up(node, why);
  });
  return true;
}

void Hosts::receive(proto::NodeId node, const Message& message) {
  if (const auto* event = std::get_if<ChildEvent>(&message)) return on_child_event(node, *event);
  if (RemoteNode* remote = find(node)) remote->receive(message);
}

void Hosts::on_child_event(proto::NodeId parent, const ChildEvent& event) {
  RemoteNode* child = find(event.node);
  if (child == nullptr || !routes_.tree().has(event.node)) return;
  if (routes_.tree().parent(event.node) != parent) {
    if (!routes_.path_has_changed(event.node)) refuse(parent);
    return;
  }
  using Kind = ChildEvent::Kind;
  if (event.kind == Kind::kConnected) child->attach(printable(event.text));
  if (event.kind == Kind::kOutput) on_line(event.node, printable(event.text));
  if (event.kind == Kind::kSilent || event.kind == Kind::kRecovered)
    on_silent(event.node, event.kind == Kind::kSilent);
  if (event.kind != Kind::kLost) return;
  const std::string of = fmt::format("host {}: ", name(*index_of(event.node)));
  const std::string text = printable(event.text);
  child->fail({event.code, text.starts_with(of) ? text : of + text});
}

void Hosts::on_silent(proto::NodeId node, bool silent) {
  if (elastic_.silent && find(node) != nullptr) elastic_.silent(node, silent);
}

void Hosts::on_line(proto::NodeId node, const std::string& line) {
  const auto index = index_of(node);
  if (options_.verbose && index) said_(fmt::format("host {}: {}", name(*index), line));
}

void Hosts::refuse(proto::NodeId node, const char* does) {
  if (const auto index = index_of(node))
    give_up(node, base::invalid_argument(fmt::format("host {}: its agent {}", name(*index), does)));
}

void Hosts::on_up(proto::NodeId node) {
  bring_up_.on_up(std::chrono::steady_clock::now());
  start_below(node);
  const auto index = index_of(node);
  if (served_ && index && elastic_.came) elastic_.came(*index);
}

// Agents below the lost one are waited for if they can reparent. The others are lost, too, but are
// not reported as failures: they run, and only cannot be reached.
void Hosts::on_ended(proto::NodeId node, const base::Status& how) {
  const bool pruned = !routes_.tree().has(node);
  const auto index = index_of(node);
  // An agent that exits before the job has begun was not told to.
  const base::Status why =
      how.ok() && bring_up_.reports_failures() && !finished_ && index
          ? base::peer_lost(
                fmt::format("host {}: its agent exited before the job began", name(*index)))
          : how;
  end_agent(node);
  std::vector<std::pair<proto::NodeId, base::Status>> below;
  for (const proto::NodeId child : routes_.tree().children(node)) {
    const auto gone = [&](proto::NodeId each) {
      return base::peer_lost(fmt::format("host {}: lost with its parent, the agent of host {}",
                                         name(*index_of(each)), index ? name(*index) : "?"));
    };
    if (await_reparenting(child, gone(child))) continue;
    for (const proto::NodeId each : routes_.tree().below(child))
      below.emplace_back(each, gone(each));
  }
  routes_.prune(node);
  if (!why.ok() && !pruned) bring_up_.on_failed(why);
  if (served_ && served_->lost && index && !why.ok()) served_->lost(*index, why);
  if (elastic_.dismissed && index && why.ok() && !finished_) elastic_.dismissed(*index);
  for (const auto& [each, reason] : below) give_up(each, reason);
  finish_if_done();
}

// The agents on the path drop the node; its parent ends it.
void Hosts::end_agent(proto::NodeId node) {
  if (routes_.tree().parent(node) == kController) return children_->end(node);
  for (auto above = routes_.agent_above(node); above; above = routes_.agent_above(*above))
    send(*above, EndAgent{node});
}

}  // namespace regroup::agent
