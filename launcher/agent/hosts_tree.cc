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
std::optional<std::size_t> Hosts::index_of(proto::NodeId node) const {
  if (node == kController || node > host_of_.size()) return std::nullopt;
  const std::size_t index = host_of_[node - 1];
  return slots_[index].id == node ? std::optional(index) : std::nullopt;
}

Hosts::Slot* Hosts::slot_of(proto::NodeId node) {
  const auto index = index_of(node);
  return index ? &slots_[*index] : nullptr;
}

RemoteNode* Hosts::find(proto::NodeId node) {
  const Slot* slot = slot_of(node);
  return slot != nullptr ? slot->node.get() : nullptr;
}

void Hosts::send(proto::NodeId node, const Message& message) {
  std::vector<std::byte> bytes = encode(message);
  const Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->session) return send_encoded(node, bytes, 0);
  if (slot->session->overfull()) return refuse(node, "does not acknowledge messages");
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  send_encoded(node, *kept, slot->session->enqueue(kept, false));
}

// Does nothing if the node has no route: numbered messages are retransmitted when it has one again.
void Hosts::send_encoded(proto::NodeId node, const std::vector<std::byte>& bytes,
                         std::uint64_t number) {
  const auto via = tree_.next_hop(kController, node);
  if (via && *via == node && number == 0) return children_->send(node, bytes);
  if (via) batch_.add(*via, node, bytes, number);
}

void Hosts::on_message(proto::NodeId child, const Message& message) {
  const Slot* slot = slot_of(child);
  if (const auto* gathered = std::get_if<Gathered>(&message)) {
    for (const Relayed& relayed : gathered->messages) unpack(child, relayed);
  } else if (const auto* relayed = std::get_if<Relayed>(&message)) {
    unpack(child, *relayed);
  } else if (const auto* ack = std::get_if<Ack>(&message)) {
    on_ack(child, *ack);
  } else if (slot != nullptr && slot->session) {
    refuse(child);  // its messages must be numbered
  } else {
    receive(child, message);
  }
}

void Hosts::unpack(proto::NodeId child, const Relayed& relayed) {
  if (relayed.nodes.size() != 1) return refuse(child);  // a message from below has one sender
  for (std::size_t i = 0; i < relayed.nodes.size(); ++i) {
    const proto::NodeId node = relayed.nodes[i];
    const std::uint64_t number = relayed.numbers.empty() ? 0 : relayed.numbers[i];
    Slot* slot = slot_of(node);
    if (slot == nullptr || !tree_.has(node)) continue;  // it has been given up
    if (!tree_.within(node, child)) {
      if (slot->reparented) continue;  // stale: it retransmits through its new parent
      return refuse(child);
    }
    if (!slot->session || (node == child && number == 0)) return refuse(child);
    if (number != 0 && !slot->session->accept(number, relayed.message.size())) continue;
    const auto said = decode(relayed.message);
    if (!said.ok()) return refuse(node);
    const auto* ack = std::get_if<Ack>(&*said);
    if (number == 0 && ack == nullptr) return refuse(node);
    if (const auto due = slot->session->ack_due()) send_encoded(node, encode(Ack{*due}), 0);
    ack != nullptr ? on_ack(node, *ack) : receive(node, *said);
  }
}

void Hosts::on_ack(proto::NodeId node, const Ack& ack) {
  const Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->session) return refuse(node);
  slot->session->acknowledge(ack.number);
  if (ack.action == Ack::Action::kReparent && children_->linked(node)) reparent(node);
}

// Accepts a connection from an agent that is up and still has another parent. The agent's first
// message on the new connection, Ack{kReparent}, then completes the change.
std::optional<std::string> Hosts::orphan(proto::NodeId node) {
  const Slot* slot = slot_of(node);
  const bool ours = slot != nullptr && slot->set_up && slot->session &&
                    tree_.parent(node) != kController &&
                    slot->node->state() == RemoteNode::State::kUp;
  return ours ? std::optional(name(*index_of(node))) : std::nullopt;
}

// Moves `node` with all agents below it. The agents on the former path, if they are alive, drop it
// first, so that none of them answers for it any more.
void Hosts::reparent(proto::NodeId node) {
  if (tree_.parent(node) == kController) return;
  end_agent(node);
  tree_.move(node, kController);
  for (const proto::NodeId each : tree_.below(node)) {
    Slot& slot = *slot_of(each);
    slot.reparented = true;
    slot.orphan.reset();
    send_encoded(each, encode(Ack{slot.session->accepted(), Ack::Action::kRetransmit}), 0);
    for (const ReliableSession::Sent& said : slot.session->unacked())
      send_encoded(each, *said.message, said.number);
    on_silent(each, false);
  }
}

// Waits kOrphanWait for an agent whose parent is lost. False: it is lost with its parent.
bool Hosts::await_reparenting(proto::NodeId node, const base::Status& why) {
  Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->set_up || !slot->session || finished_) return false;
  if (slot->node->state() != RemoteNode::State::kUp) return false;
  for (const proto::NodeId each : tree_.below(node)) {
    if (Slot* below = slot_of(each)) below->reparented = true;
    on_silent(each, true);
  }
  tree_.detach(node);
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
  if (child == nullptr || !tree_.has(event.node)) return;
  if (tree_.parent(event.node) != parent) {
    if (!slot_of(event.node)->reparented) refuse(parent);
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
  last_up_ = std::chrono::steady_clock::now();
  start_below(node);
  const auto index = index_of(node);
  if (out_ != nullptr && index && elastic_.came) elastic_.came(*index);
}

// Agents below the lost one are waited for if they can reparent. The others are lost, too, but are
// not reported as failures: they run, and only cannot be reached.
void Hosts::on_ended(proto::NodeId node, const base::Status& how) {
  const bool pruned = !tree_.has(node);
  const auto index = index_of(node);
  // An agent that exits before the job has begun was not told to.
  const base::Status why =
      how.ok() && failed_ && !finished_ && index
          ? base::peer_lost(
                fmt::format("host {}: its agent exited before the job began", name(*index)))
          : how;
  end_agent(node);
  std::vector<std::pair<proto::NodeId, base::Status>> below;
  for (const proto::NodeId child : tree_.children(node)) {
    const auto gone = [&](proto::NodeId each) {
      return base::peer_lost(fmt::format("host {}: lost with its parent, the agent of host {}",
                                         name(*index_of(each)), index ? name(*index) : "?"));
    };
    if (await_reparenting(child, gone(child))) continue;
    for (const proto::NodeId each : tree_.below(child)) below.emplace_back(each, gone(each));
  }
  tree_.prune(node);
  if (!why.ok() && !pruned) {
    failures_.push_back(why);
    if (failed_) failed_(why);
  }
  if (lost_ && index && !why.ok()) lost_(*index, why);
  if (elastic_.left && index && why.ok() && !finished_) elastic_.left(*index);
  for (const auto& [each, reason] : below) give_up(each, reason);
  finish_if_done();
}

// The agents on the path drop the node; its parent ends it.
void Hosts::end_agent(proto::NodeId node) {
  if (tree_.parent(node) == kController) return children_->end(node);
  for (auto above = tree_.parent(node); above && *above != kController;
       above = tree_.parent(*above))
    send(*above, EndAgent{node});
}

}  // namespace regroup::agent
