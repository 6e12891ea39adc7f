// Children wait, all of them, while the way up is full: their links stay as they are, and so what comes to
// this host is bounded, however many are below it.
#include "launcher/node/relay.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/node/wire.h"

namespace regroup::node {

Relay::Relay(boost::asio::io_context& loop, NodeAgentOptions options, Uplink& uplink)
    : loop_(loop), options_(std::move(options)), uplink_(uplink), tree_(options_.node) {}

bool Relay::take(const Message& message) {
  return std::visit([this](const auto& body) { return on(body); }, message);
}

core::Status Relay::make_children(const StartAgents& start) {
  ChildrenOptions options;
  options.job = options_.job;
  options.self = options_.node;
  options.here = "host " + start.from;
  options.from = " (from " + start.from + ")";
  options.secret = options_.secret;
  options.environment = options_.environment;
  options.ssh = start.ssh;
  options.program = start.program;
  options.preferred = start.preferred;
  options.wdir = start.wdir;
  options.limit = std::chrono::milliseconds(start.limit_ms);
  options.beats = true;
  using Kind = ChildNews::Kind;
  Children::Events events{
      .linked = [this](core::NodeId child,
                       const std::string& address) { tell(Kind::kLinked, child, address); },
      .message = [this](core::NodeId child, const Message& message) { on_child(child, message); },
      .silent = [this](core::NodeId child,
                       bool silent) { tell(silent ? Kind::kSilent : Kind::kHeard, child, {}); },
      .line = [this](core::NodeId child, const std::string& line) { tell(Kind::kSaid, child, line); },
      .lost = [this](core::NodeId child, const core::Status& why) { on_lost(child, why); },
      .left = [this] { on_left(); }};
  auto made = Children::make(loop_, std::move(options), std::move(events));
  if (!made.ok()) return made.status();
  children_ = std::move(*made);
  return {};
}

bool Relay::on(const StartAgents& start) {
  core::Status status = children_ ? core::Status() : make_children(start);
  for (const StartAgents::Child& child : start.children) {
    if (!tree_.add(child.node, options_.node)) continue;
    core::Status started = status;
    if (started.ok()) started = children_->start({child.node, child.name, child.user, start.ssh.empty()});
    if (!started.ok())
      on_lost(child.node, {started.code(),
                           "host " + child.name + ": " + started.message() + " (from " + start.from + ")"});
  }
  return true;
}

bool Relay::on(const Reach& reach) {
  for (const core::NodeId node : reach.nodes) tree_.add(node, reach.via);
  return true;
}

bool Relay::on(const EndAgent& end) {
  if (children_) children_->end(end.node);
  if (end.node != options_.node) tree_.prune(end.node);
  return true;
}

bool Relay::on(const Relayed& relayed) {
  std::map<core::NodeId, std::vector<core::NodeId>> hops;
  for (const core::NodeId node : relayed.nodes) {
    if (const auto hop = tree_.next_hop(options_.node, node)) hops[*hop].push_back(node);
  }
  for (auto& [hop, nodes] : hops) {
    if (!children_) continue;
    if (std::erase(nodes, hop) > 0) children_->send(hop, relayed.message);
    if (!nodes.empty()) children_->send(hop, encode(Relayed{nodes, relayed.message}));
  }
  return true;
}

void Relay::on_child(core::NodeId child, const Message& message) {
  const auto* relayed = std::get_if<Relayed>(&message);
  if (relayed == nullptr) return up(Relayed{{child}, encode(message)});
  const auto below = [&](core::NodeId node) {
    return node != child && (!tree_.has(node) || tree_.within(node, child));
  };
  if (std::ranges::all_of(relayed->nodes, below)) return up(message);
  const std::string name = children_->name(child);
  children_->end(child);
  on_lost(child, core::invalid_argument("host " + name + ": its agent said what only others may say"));
}

void Relay::on_lost(core::NodeId child, const core::Status& why) {
  tree_.prune(child);
  tell(ChildNews::Kind::kLost, child, why.message(), why.code());
}

void Relay::tell(ChildNews::Kind kind, core::NodeId child, std::string text, core::Code code) {
  up(ChildNews{kind, child, std::move(text), code});
}

void Relay::up(const Message& message) {
  if (!uplink_.open()) return;
  uplink_.send(message);
  if (waiting_ || !children_ || uplink_.queued() <= kMostQueued) return;
  waiting_ = true;
  children_->pause();
  uplink_.when_queued_at_most(kMostQueued / 2, [this] {
    waiting_ = false;
    children_->resume();
  });
}

void Relay::when_empty(std::function<void()> then) {
  then_ = std::move(then);
  on_left();
}

void Relay::on_left() {
  if (!then_ || !(closed_ || !children_ || children_->empty())) return;
  std::exchange(then_, nullptr)();
}

void Relay::close() {
  closed_ = true;
  if (children_) children_->end_all();
  on_left();
}

}  // namespace regroup::node
