// The tree is laid out at the start; who is below an agent is started by it, once it has said Hello. What
// goes to an agent below another is wrapped for it, what comes from there unwrapped.
#include "launcher/node/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "launcher/net/tcp.h"
#include "launcher/node/wire.h"
#include "launcher/spawn/remote_script.h"

namespace regroup::node {
namespace {

constexpr core::NodeId kHead = 0;

}  // namespace

Hosts::Hosts(boost::asio::io_context& loop, HostsOptions options,
             std::function<void(const std::string&)> said)
    : loop_(loop),
      options_(std::move(options)),
      said_(std::move(said)),
      courier_(kHead),
      tree_(courier_.tree()),
      bundle_(loop,
              [this](core::NodeId via, const Relayed& relayed) { children_->send(via, encode(relayed)); }) {}

Hosts::~Hosts() = default;

core::Result<std::unique_ptr<Hosts>> Hosts::make(boost::asio::io_context& loop, HostsOptions options,
                                                 std::function<void(const std::string&)> said) {
  std::unique_ptr<Hosts> hosts(new Hosts(loop, std::move(options), std::move(said)));
  REGROUP_RETURN_IF_ERROR(hosts->start());
  return hosts;
}

core::Status Hosts::start() {
  auto secret = launcher::JobSecret::generate();
  if (!secret.ok()) return secret.status();
  ChildrenOptions options;
  options.job = options_.job;
  options.self = kHead;
  options.here = "this host";
  options.secret = *secret;
  options.environment = options_.environment;
  options.ssh = options_.ssh;
  options.program = options_.program;
  options.preferred = options_.preferred;
  options.wdir = options_.wdir;
  options.limit = options_.limit;
  auto children = Children::make(loop_, std::move(options), events());
  if (!children.ok()) return children.status();
  children_ = std::move(*children);
  slots_.resize(options_.hosts.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) add_slot(i);
  plant();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (tree_.parent(id(i)) == kHead) REGROUP_RETURN_IF_ERROR(start_child(i));
  }
  return {};
}

Children::Events Hosts::events() {
  Children::Events events;
  events.linked = [this](core::NodeId child, const std::string& address) {
    if (RemoteNode* node = find(child)) node->attach(address);
  };
  events.message = [this](core::NodeId child, const Message& message) { on_message(child, message); };
  events.silent = [this](core::NodeId child, bool silent) { on_silent(child, silent); };
  events.line = [this](core::NodeId child, const std::string& line) { on_line(child, line); };
  events.lost = [this](core::NodeId child, const core::Status& why) {
    if (RemoteNode* node = find(child)) node->fail(why);
  };
  events.left = [this] { finish_if_done(); };
  return events;
}

void Hosts::add_slot(std::size_t index) {
  Slot& slot = slots_[index];
  const core::NodeId id = slot.id = ++last_id_;
  RemoteNode::Events events;
  events.send = [this, id](const Message& message) { send(id, message); };
  events.up = [this, id] { on_up(id); };
  events.ended = [this, id](const core::Status& why) { on_ended(id, why); };
  events.membership = [this, id](const core::Message& message) {
    if (elastic_.membership) elastic_.membership(id, message);
  };
  if (slot.node) retired_.push_back(std::move(slot.node));
  slot.node = std::make_unique<RemoteNode>(loop_, name(index), options_.version, std::move(events));
}

// The first hosts are the head's children, the next ones those of the first, and so on.
void Hosts::plant() {
  std::vector<core::NodeId> row;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool here = options_.hosts[i].here;
    const auto parent = here ? std::nullopt : parent_in_row(row.size(), options_.radix);
    tree_.add(id(i), parent ? row[*parent] : kHead);
    if (!here) row.push_back(id(i));
  }
}

core::Status Hosts::start_child(std::size_t index) {
  const HostsOptions::Host& host = options_.hosts[index];
  return children_->start({id(index), host.name, host.user, host.here || options_.ssh.empty()});
}

// Those on the way there learn of its children before these can say a word.
void Hosts::start_below(core::NodeId node) {
  const std::vector<core::NodeId> children = tree_.children(node);
  const auto index = index_of(node);
  if (children.empty() || !index) return;
  core::NodeId via = node;
  for (auto above = tree_.parent(node); above && *above != kHead; above = tree_.parent(via)) {
    send(*above, Reach{via, children});
    via = *above;
  }
  StartAgents start;
  start.from = name(*index);
  start.ssh = options_.ssh;
  start.program = options_.program;
  start.preferred = options_.preferred;
  start.wdir = options_.wdir;
  start.limit_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.limit).count());
  for (const core::NodeId child : children) {
    const HostsOptions::Host& host = options_.hosts[*index_of(child)];
    start.children.push_back({child, host.name, host.user});
  }
  send(node, start);
}

void Hosts::send(core::NodeId node, const Message& message) { send_encoded(node, encode(message)); }

void Hosts::send_encoded(core::NodeId node, const std::vector<std::byte>& bytes) {
  const auto via = tree_.next_hop(kHead, node);
  if (via && *via == node) return children_->send(node, bytes);
  if (via) bundle_.add(*via, node, bytes);
}

bool Hosts::is_up(std::size_t index) const {
  return slots_.at(index).node->state() == RemoteNode::State::kUp;
}

std::optional<std::size_t> Hosts::index_of(core::NodeId node) const {
  const auto found = std::ranges::find(slots_, node, &Slot::id);
  if (found == slots_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - slots_.begin());
}

RemoteNode* Hosts::find(core::NodeId node) {
  const auto index = index_of(node);
  return index ? slots_[*index].node.get() : nullptr;
}

std::vector<core::Status> Hosts::bring_up() {
  const auto starting = [this] {
    return std::ranges::any_of(
        slots_, [](const Slot& slot) { return slot.node->state() == RemoteNode::State::kStarting; });
  };
  std::size_t levels = 1;
  for (const Slot& slot : slots_) levels = std::max(levels, tree_.depth(slot.id).value_or(0));
  const auto rounds = std::chrono::seconds(slots_.size() / 32);
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(3 * levels * options_.limit) + rounds;
  while (starting()) {
    if (loop_.run_one_until(deadline) > 0) continue;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].node->state() != RemoteNode::State::kStarting) continue;
      slots_[i].node->fail(
          core::deadline_exceeded(fmt::format("host {}: its agent did not come up in time", name(i))));
    }
  }
  return failures_;
}

void Hosts::on_message(core::NodeId child, const Message& message) {
  if (const auto* gathered = std::get_if<Gathered>(&message)) {
    for (const Relayed& relayed : gathered->messages) unwrap(child, relayed);
  } else if (const auto* relayed = std::get_if<Relayed>(&message)) {
    unwrap(child, *relayed);
  } else {
    receive(child, message);
  }
}

void Hosts::unwrap(core::NodeId child, const Relayed& relayed) {
  for (const core::NodeId node : relayed.nodes) {
    if (!tree_.has(node)) continue;  // it was given up meanwhile
    if (node == child || !tree_.within(node, child)) return refuse(child);
    const auto said = decode(relayed.message);
    if (!said.ok()) return refuse(node);
    receive(node, *said);
  }
}

void Hosts::receive(core::NodeId node, const Message& message) {
  if (const auto* news = std::get_if<ChildNews>(&message)) return on_news(node, *news);
  if (RemoteNode* remote = find(node)) remote->receive(message);
}

void Hosts::on_news(core::NodeId parent, const ChildNews& news) {
  RemoteNode* child = find(news.node);
  if (child == nullptr || !tree_.has(news.node)) return;
  if (tree_.parent(news.node) != parent) return refuse(parent);
  using Kind = ChildNews::Kind;
  if (news.kind == Kind::kLinked) child->attach(news.text);
  if (news.kind == Kind::kSaid) on_line(news.node, launcher::printable(news.text));
  if (news.kind == Kind::kSilent || news.kind == Kind::kHeard)
    on_silent(news.node, news.kind == Kind::kSilent);
  if (news.kind == Kind::kLost) child->fail({news.code, launcher::printable(news.text)});
}

void Hosts::on_silent(core::NodeId node, bool silent) {
  if (elastic_.silent && find(node) != nullptr) elastic_.silent(node, silent);
}

void Hosts::on_line(core::NodeId node, const std::string& line) {
  const auto index = index_of(node);
  if (options_.verbose && index) said_(fmt::format("host {}: {}", name(*index), line));
}

void Hosts::refuse(core::NodeId node) {
  const auto index = index_of(node);
  if (index)
    give_up(node, core::invalid_argument(
                      fmt::format("host {}: its agent said what only others may say", name(*index))));
}

void Hosts::on_up(core::NodeId node) {
  start_below(node);
  const auto index = index_of(node);
  if (out_ != nullptr && index && elastic_.came) elastic_.came(*index);
}

// Those below it are lost with it, and not said to be so: they are well, but nobody tells them what to do.
void Hosts::on_ended(core::NodeId node, const core::Status& why) {
  const bool orphan = !tree_.has(node);
  std::vector<core::NodeId> below = tree_.below(node);
  end_agent(node);
  tree_.prune(node);
  const auto index = index_of(node);
  if (!why.ok() && !orphan) failures_.push_back(why);
  if (lost_ && index && !why.ok()) lost_(*index, why);
  for (const core::NodeId each : below) {
    const auto other = index_of(each);
    if (each != node && other && index)
      slots_[*other].node->fail(
          {core::Code::kPeerLost, fmt::format("host {}: the agent of host {}, which it was reached through, "
                                              "is gone",
                                              name(*other), name(*index))});
  }
  finish_if_done();
}

void Hosts::end_agent(core::NodeId node) {
  const auto parent = tree_.parent(node);
  if (!parent) return;
  if (*parent == kHead) return children_->end(node);
  send(*parent, EndAgent{node});
}

void Hosts::bring_back(std::size_t index) {
  if (finished_ || slots_.at(index).node->state() != RemoteNode::State::kEnded) return;
  add_slot(index);
  tree_.add(id(index), kHead);
  if (const core::Status status = start_child(index); !status.ok()) slots_[index].node->fail(status);
}

void Hosts::set_up(std::size_t index, const Setup& setup, const launcher::App& app) {
  RemoteNode& node = *slots_.at(index).node;
  node.set_up(setup);
  node.serve(events_, *out_, *err_);
  node.add_app(0, app);
}

void Hosts::give_up(core::NodeId node, const core::Status& why) {
  if (const auto index = index_of(node)) slots_[*index].node->fail(why);
}

void Hosts::tell_membership(core::NodeId node, const core::Message& message) {
  if (const auto index = index_of(node)) slots_[*index].node->tell_membership(message);
}

void Hosts::tell_membership(const core::Message& message) {
  std::vector<core::NodeId> all;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (is_up(index)) all.push_back(id(index));
  }
  bundle_.flush();  // what was said before comes before
  const Message said = Membership{message};
  for (const Parcel& parcel : courier_.down(all, encode(said), wants_answer(said)))
    children_->send(parcel.child, *parcel.bytes);
}

std::string Hosts::own_address() const {
  const auto endpoints = launcher::own_endpoints(0);
  return endpoints.ok() && !endpoints->empty() ? endpoints->front().address().to_string() : "127.0.0.1";
}

void Hosts::set_up(const std::vector<Setup>& setups) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (setups.at(i).stdin_to.to == launcher::StdinRequest::To::kRank) reader_ = i;
    slots_[i].node->set_up(setups[i]);
  }
}

void Hosts::serve(launcher::NodeEvents events, Lost lost, launcher::Sink& out, launcher::Sink& err) {
  lost_ = std::move(lost);
  events_ = std::move(events);
  out_ = &out;
  err_ = &err;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (is_up(i) && !elastic_.came) slots_[i].node->serve(events_, out, err);
  }
  if (reader_) slots_[*reader_].node->feed_input();
}

void Hosts::signal_all(int signal) {
  for (const Slot& slot : slots_) slot.node->signal_all(signal);
}

std::size_t Hosts::running() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.node->running();
  return sum;
}

void Hosts::finish(std::function<void()> then) {
  finished_ = std::move(then);
  const auto finish = [this](RemoteNode& node) {
    node.on_drained([this] { finish_if_done(); });
    node.finish();
  };
  for (const Slot& slot : slots_) finish(*slot.node);
  for (const auto& node : retired_) finish(*node);
  finish_if_done();
}

void Hosts::finish_if_done() {
  if (!finished_ || !children_->empty()) return;
  const bool all = std::ranges::all_of(slots_, [](const Slot& slot) { return slot.node->drained(); }) &&
                   std::ranges::all_of(retired_, [](const auto& node) { return node->drained(); });
  if (all) std::exchange(finished_, nullptr)();
}

}  // namespace regroup::node
