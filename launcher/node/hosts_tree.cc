// What goes down and up the tree, who is lost, and who is taken in. An agent of an elastic job whose parent
// is gone connects to the head, which becomes its parent; what was on its way is said again by both.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/node/adoption.h"
#include "launcher/node/hosts.h"
#include "launcher/node/wire.h"
#include "launcher/spawn/remote_script.h"
#include "launcher/supervise/due.h"

namespace regroup::node {
std::optional<std::size_t> Hosts::index_of(core::NodeId node) const {
  if (node == kHead || node > host_of_.size()) return std::nullopt;
  const std::size_t index = host_of_[node - 1];
  return slots_[index].id == node ? std::optional(index) : std::nullopt;
}

Hosts::Slot* Hosts::slot_of(core::NodeId node) {
  const auto index = index_of(node);
  return index ? &slots_[*index] : nullptr;
}

RemoteNode* Hosts::find(core::NodeId node) {
  const Slot* slot = slot_of(node);
  return slot != nullptr ? slot->node.get() : nullptr;
}

void Hosts::send(core::NodeId node, const Message& message) {
  std::vector<std::byte> bytes = encode(message);
  const Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->talk) return send_encoded(node, bytes, 0);
  if (slot->talk->overfull()) return refuse(node, "does not say what it hears");
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  send_encoded(node, *kept, slot->talk->say(kept, false));
}

// Nothing happens where there is no way: what has a number is said again when there is.
void Hosts::send_encoded(core::NodeId node, const std::vector<std::byte>& bytes, std::uint64_t number) {
  const auto via = tree_.next_hop(kHead, node);
  if (via && *via == node && number == 0) return children_->send(node, bytes);
  if (via) bundle_.add(*via, node, bytes, number);
}

void Hosts::on_message(core::NodeId child, const Message& message) {
  const Slot* slot = slot_of(child);
  if (const auto* gathered = std::get_if<Gathered>(&message)) {
    for (const Relayed& relayed : gathered->messages) unwrap(child, relayed);
  } else if (const auto* relayed = std::get_if<Relayed>(&message)) {
    unwrap(child, *relayed);
  } else if (const auto* heard = std::get_if<Heard>(&message)) {
    on_heard(child, *heard);
  } else if (slot != nullptr && slot->talk) {
    refuse(child);  // what it says has numbers
  } else {
    receive(child, message);
  }
}

void Hosts::unwrap(core::NodeId child, const Relayed& relayed) {
  if (relayed.nodes.size() != 1) return refuse(child);  // each message is of one
  for (std::size_t i = 0; i < relayed.nodes.size(); ++i) {
    const core::NodeId node = relayed.nodes[i];
    const std::uint64_t number = relayed.numbers.empty() ? 0 : relayed.numbers[i];
    Slot* slot = slot_of(node);
    if (slot == nullptr || !tree_.has(node)) continue;  // it was given up meanwhile
    if (!tree_.within(node, child)) {
      if (slot->moved) continue;  // it says it again by its new way
      return refuse(child);
    }
    if (!slot->talk || (node == child && number == 0)) return refuse(child);
    if (number != 0 && !slot->talk->take(number, relayed.message.size())) continue;
    const auto said = decode(relayed.message);
    if (!said.ok()) return refuse(node);
    const auto* heard = std::get_if<Heard>(&*said);
    if (number == 0 && heard == nullptr) return refuse(node);
    if (const auto due = slot->talk->due()) send_encoded(node, encode(Heard{*due}), 0);
    heard != nullptr ? on_heard(node, *heard) : receive(node, *said);
  }
}

void Hosts::on_heard(core::NodeId node, const Heard& heard) {
  const Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->talk) return refuse(node);
  slot->talk->heard(heard.number);
  if (heard.then == Heard::Then::kAdopt && children_->linked(node)) adopt(node);
}

// It is up, and was not given up; its link is there, and says this in a moment.
std::optional<std::string> Hosts::orphan(core::NodeId node) {
  const Slot* slot = slot_of(node);
  const bool ours = slot != nullptr && slot->set_up && slot->talk && tree_.parent(node) != kHead &&
                    slot->node->state() == RemoteNode::State::kUp;
  return ours ? std::optional(name(*index_of(node))) : std::nullopt;
}

// With all below it. Those that were on the way to it, if any of them lives, forget it first.
void Hosts::adopt(core::NodeId node) {
  if (tree_.parent(node) == kHead) return;
  end_agent(node);
  tree_.move(node, kHead);
  for (const core::NodeId each : tree_.below(node)) {
    Slot& slot = *slot_of(each);
    slot.moved = true;
    slot.orphan.reset();
    send_encoded(each, encode(Heard{slot.talk->taken(), Heard::Then::kAgain}), 0);
    for (const Conversation::Said& said : slot.talk->unheard())
      send_encoded(each, *said.message, said.number);
    on_silent(each, false);
  }
}

// False: it is lost with its parent.
bool Hosts::await(core::NodeId node, const core::Status& why) {
  Slot* slot = slot_of(node);
  if (slot == nullptr || !slot->set_up || !slot->talk || finished_) return false;
  if (slot->node->state() != RemoteNode::State::kUp) return false;
  for (const core::NodeId each : tree_.below(node)) {
    if (Slot* below = slot_of(each)) below->moved = true;
    on_silent(each, true);
  }
  tree_.detach(node);
  slot->orphan = std::make_unique<boost::asio::steady_timer>(loop_, kOrphanWait);
  slot->orphan->async_wait([this, node, why](const boost::system::error_code& error) {
    const Slot* waiting = error ? nullptr : slot_of(node);
    if (waiting != nullptr && waiting->orphan && launcher::is_due(*waiting->orphan)) give_up(node, why);
  });
  return true;
}

void Hosts::receive(core::NodeId node, const Message& message) {
  if (const auto* news = std::get_if<ChildNews>(&message)) return on_news(node, *news);
  if (RemoteNode* remote = find(node)) remote->receive(message);
}

void Hosts::on_news(core::NodeId parent, const ChildNews& news) {
  RemoteNode* child = find(news.node);
  if (child == nullptr || !tree_.has(news.node)) return;
  if (tree_.parent(news.node) != parent) {
    if (!slot_of(news.node)->moved) refuse(parent);
    return;
  }
  using Kind = ChildNews::Kind;
  if (news.kind == Kind::kLinked) child->attach(launcher::printable(news.text));
  if (news.kind == Kind::kSaid) on_line(news.node, launcher::printable(news.text));
  if (news.kind == Kind::kSilent || news.kind == Kind::kHeard)
    on_silent(news.node, news.kind == Kind::kSilent);
  if (news.kind != Kind::kLost) return;
  const std::string of = fmt::format("host {}: ", name(*index_of(news.node)));
  const std::string text = launcher::printable(news.text);
  child->fail({news.code, text.starts_with(of) ? text : of + text});
}

void Hosts::on_silent(core::NodeId node, bool silent) {
  if (elastic_.silent && find(node) != nullptr) elastic_.silent(node, silent);
}

void Hosts::on_line(core::NodeId node, const std::string& line) {
  const auto index = index_of(node);
  if (options_.verbose && index) said_(fmt::format("host {}: {}", name(*index), line));
}

void Hosts::refuse(core::NodeId node, const char* does) {
  if (const auto index = index_of(node))
    give_up(node, core::invalid_argument(fmt::format("host {}: its agent {}", name(*index), does)));
}

void Hosts::on_up(core::NodeId node) {
  came_ = std::chrono::steady_clock::now();
  start_below(node);
  const auto index = index_of(node);
  if (out_ != nullptr && index && elastic_.came) elastic_.came(*index);
}

// Those below it are lost with it, and not said to be so: they are well, but nobody tells them what to do.
// Unless they can come to us by another way.
void Hosts::on_ended(core::NodeId node, const core::Status& how) {
  const bool pruned = !tree_.has(node);
  const auto index = index_of(node);
  // Nobody has asked it to leave before the job has begun.
  const core::Status why =
      how.ok() && failed_ && !finished_ && index
          ? core::Status(core::Code::kPeerLost, fmt::format("host {}: its agent left", name(*index)))
          : how;
  end_agent(node);
  std::vector<std::pair<core::NodeId, core::Status>> below;
  for (const core::NodeId child : tree_.children(node)) {
    const auto gone = [&](core::NodeId each) {
      return core::Status(core::Code::kPeerLost,
                          fmt::format("host {}: the agent of host {}, which it was reached through, is gone",
                                      name(*index_of(each)), index ? name(*index) : "?"));
    };
    if (await(child, gone(child))) continue;
    for (const core::NodeId each : tree_.below(child)) below.emplace_back(each, gone(each));
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

// All on the way there forget it; its parent ends it.
void Hosts::end_agent(core::NodeId node) {
  if (tree_.parent(node) == kHead) return children_->end(node);
  for (auto above = tree_.parent(node); above && *above != kHead; above = tree_.parent(*above))
    send(*above, EndAgent{node});
}

}  // namespace regroup::node
