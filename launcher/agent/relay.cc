// Back-pressure: while the uplink's queue is full, the relay reads from no child. So the memory of
// this host is bounded, however many agents are below it. A child that is lost is forgotten before
// its loss is reported: replies that waited only for it then go up first, and after the report
// nothing goes up in its name.
#include "launcher/agent/relay.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/agent/wire.h"

namespace regroup::agent {

Relay::Relay(boost::asio::io_context& loop, NodeAgentOptions options, Uplink& uplink)
    : loop_(loop), options_(std::move(options)), uplink_(uplink), router_(options_.node) {}

bool Relay::take(const Message& message) {
  return std::visit([this](const auto& body) { return on(body); }, message);
}

base::Status Relay::make_children(const StartAgents& start) {
  ChildrenOptions options;
  options.job = options_.job;
  options.build = options_.build;
  options.self = options_.node;
  options.from = " (from " + start.from + ")";
  options.secret = options_.secret;
  options.environment = options_.environment;
  options.ssh = start.ssh;
  options.program = start.program;
  options.preferred = start.preferred;
  options.wdir = start.wdir;
  options.limit = std::chrono::milliseconds(start.limit_ms);
  options.heartbeats = true;
  using Kind = ChildEvent::Kind;
  Children::Events events{
      .linked = [this](proto::NodeId child,
                       const std::string& address) { tell(Kind::kConnected, child, address); },
      .message = [this](proto::NodeId child, const Message& message) { on_child(child, message); },
      .silent = [this](proto::NodeId child,
                       bool silent) { tell(silent ? Kind::kSilent : Kind::kRecovered, child, {}); },
      .line = [this](proto::NodeId child,
                     const std::string& line) { tell(Kind::kOutput, child, line); },
      .lost = [this](proto::NodeId child, const base::Status& why) { on_lost(child, why); },
      .exited = [this] { on_left(); }};
  REGROUP_ASSIGN_OR_RETURN(children_, Children::make(loop_, std::move(options), std::move(events)));
  return {};
}

bool Relay::on(const StartAgents& start) {
  base::Status status = children_ ? base::Status() : make_children(start);
  for (const StartAgents::Child& child : start.children) {
    if (!router_.tree().add(child.node, options_.node)) continue;
    base::Status started = status;
    if (started.ok())
      started = children_->start({child.node, child.name, child.user, start.ssh.empty()});
    if (!started.ok())
      on_lost(child.node, {started.code(), "host " + child.name + ": " + started.message() +
                                               " (from " + start.from + ")"});
  }
  return true;
}

bool Relay::on(const AddRoute& reach) {
  for (const proto::NodeId node : reach.nodes) router_.tree().add(node, reach.via);
  return true;
}

bool Relay::on(const EndAgent& end) {
  if (children_) children_->end(end.node);
  if (end.node != options_.node) forget(end.node);
  return true;
}

bool Relay::on(const Relayed& relayed) {
  for (const Frame& frame : router_.relay(relayed)) {
    if (children_) children_->send(frame.child, *frame.bytes);
  }
  return true;
}

void Relay::on_child(proto::NodeId child, const Message& message) {
  if (const auto said = router_.up(child, message)) {
    for (const Message& each : *said) up(each);
    return;
  }
  const std::string name = children_->name(child);
  children_->end(child);
  on_lost(child, base::invalid_argument("host " + name +
                                        ": its agent sent a message that it may not send"));
}

void Relay::on_lost(proto::NodeId child, const base::Status& why) {
  forget(child);
  tell(ChildEvent::Kind::kLost, child, why.message(), why.code());
}

void Relay::forget(proto::NodeId child) {
  for (const Message& said : router_.lose(child)) up(said);
}

void Relay::tell(ChildEvent::Kind kind, proto::NodeId child, std::string text, base::Code code) {
  uplink_.send(ChildEvent{kind, child, std::move(text), code});
  check_queue();
}

void Relay::up(const Message& message) {
  if (!uplink_.open()) return;
  uplink_.forward(message);
  check_queue();
}

void Relay::check_queue() {
  if (waiting_ || !children_ || uplink_.queued() <= kMostQueued) return;
  waiting_ = true;
  children_->pause();
  uplink_.when_queued_at_most(kMostQueued / 2, [this] {
    waiting_ = false;
    children_->resume();
  });
}

void Relay::moved() {
  if (std::exchange(waiting_, false)) children_->resume();
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

}  // namespace regroup::agent
