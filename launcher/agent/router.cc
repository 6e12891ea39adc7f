// The coordinator does nothing before it has all replies to a question, so aggregating them here
// delays nothing and the controller gets one message per child. Invariants:
// - The messages of one node go up in the order in which it sent them: one that follows a held
//   reply releases all held replies first.
// - A held reply is never lost: it goes up with the last reply that was asked for, or when the
//   nodes that still owe one are given up.
#include "launcher/agent/router.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "launcher/agent/wire.h"

namespace regroup::agent {

bool is_answer(const Message& message) {
  const auto* membership = std::get_if<Membership>(&message);
  if (membership == nullptr) return false;
  const proto::Body& body = membership->message.body;
  return std::holds_alternative<proto::Report>(body) ||
         std::holds_alternative<proto::HelloReply>(body);
}

bool wants_answer(const Message& message) {
  const auto* membership = std::get_if<Membership>(&message);
  if (membership == nullptr) return false;
  const proto::Body& body = membership->message.body;
  return std::holds_alternative<proto::Revoke>(body) ||
         std::holds_alternative<proto::Hello>(body) || std::holds_alternative<proto::Query>(body);
}

std::vector<Frame> Router::down(std::span<const proto::NodeId> nodes,
                                std::span<const std::byte> message, bool answered,
                                std::span<const std::uint64_t> numbers) const {
  struct Hop {
    bool itself = false;  // the child itself, without a number
    bool numbered = false;
    Relayed others;
  };
  std::map<proto::NodeId, Hop> hops;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto to = tree_.next_hop(tree_.root(), nodes[i]);
    if (!to) continue;
    Hop& hop = hops[*to];
    const std::uint64_t number = numbers.empty() ? 0 : numbers[i];
    hop.numbered = hop.numbered || number != 0;
    if (*to == nodes[i] && number == 0) {
      hop.itself = true;
    } else {
      hop.others.nodes.push_back(nodes[i]);
      hop.others.numbers.push_back(number);
    }
  }
  const auto shared = [](std::vector<std::byte> bytes) {
    return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  };
  const auto plain = shared({message.begin(), message.end()});
  std::vector<Frame> out;
  for (auto& [child, hop] : hops) {
    if (hop.itself) out.push_back({child, plain});
    if (hop.others.nodes.empty()) continue;
    hop.others.message = *plain;
    hop.others.answered = answered;
    if (!hop.numbered) hop.others.numbers.clear();
    out.push_back({child, shared(encode(hop.others))});
  }
  return out;
}

// A node is waited for before its question leaves: its reply finds it so.
std::vector<Frame> Router::relay(const Relayed& relayed) {
  for (const proto::NodeId node : relayed.nodes) {
    if (relayed.answered && tree_.next_hop(tree_.root(), node)) waiting_.insert(node);
  }
  return down(relayed.nodes, relayed.message, relayed.answered, relayed.numbers);
}

std::optional<std::vector<Message>> Router::up(proto::NodeId child, const Message& message) {
  std::vector<Message> out;
  if (const auto* gathered = std::get_if<Gathered>(&message)) {
    const auto may = [&](const Relayed& relayed) { return may_say(child, relayed); };
    if (!std::ranges::all_of(gathered->messages, may)) return std::nullopt;
    for (const Relayed& relayed : gathered->messages) take(relayed, &out);
  } else if (const auto* relayed = std::get_if<Relayed>(&message)) {
    if (!may_say(child, *relayed)) return std::nullopt;
    take(*relayed, &out);
  } else {
    take({{child}, encode(message), is_answer(message)}, &out);
  }
  return out;
}

// A node that is unknown here was given up; its earlier messages may still arrive and are passed
// on.
bool Router::may_say(proto::NodeId child, const Relayed& relayed) const {
  if (relayed.nodes.size() != 1) return false;
  const proto::NodeId node = relayed.nodes.front();
  if (node == child) return !relayed.numbers.empty();
  return !tree_.has(node) || tree_.within(node, child);
}

void Router::take(Relayed relayed, std::vector<Message>* out) {
  if (relayed.answered && waiting_.erase(relayed.nodes.front()) > 0) {
    answers_.push_back(std::move(relayed));
    if (waiting_.empty()) release(out);
    return;
  }
  const auto same = [&](const Relayed& held) { return held.nodes == relayed.nodes; };
  if (std::ranges::any_of(answers_, same)) release(out);
  out->emplace_back(std::move(relayed));
}

void Router::release(std::vector<Message>* out) {
  if (!answers_.empty()) out->emplace_back(Gathered{std::exchange(answers_, {})});
}

std::vector<Message> Router::lose(proto::NodeId child) {
  std::vector<Message> out;
  for (const proto::NodeId node : tree_.below(child)) waiting_.erase(node);
  tree_.prune(child);
  if (waiting_.empty()) release(&out);
  return out;
}

}  // namespace regroup::agent
