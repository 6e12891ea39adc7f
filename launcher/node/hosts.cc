// An agent is on its way by ssh, connects back, says Hello; each step has its limit.
#include "launcher/node/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/net/tcp.h"
#include "launcher/spawn/process_spawner.h"

namespace regroup::node {
namespace {

constexpr core::NodeId kHead = 0;

}  // namespace

Hosts::Hosts(boost::asio::io_context& loop, HostsOptions options,
             std::function<void(const std::string&)> said)
    : loop_(loop), options_(std::move(options)), said_(std::move(said)) {}

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
  auto context = launcher::TlsContext::make(options_.job, kHead, *secret);
  if (!context.ok()) return context.status();
  listener_ = std::make_unique<launcher::SecureListener>(
      loop_, *context,
      [this](std::shared_ptr<launcher::SecureChannel> channel) { on_linked(std::move(channel)); });
  REGROUP_RETURN_IF_ERROR(listener_->start(0));
  auto endpoints = launcher::own_endpoints(listener_->port());
  if (!endpoints.ok()) return endpoints.status();
  endpoints_ = launcher::to_string(*endpoints);
  const launcher::SpawnEvents events{
      .up = [](core::NodeId) {},
      .line =
          [this](core::NodeId node, const std::string& line) {
            const auto index = index_of(node);
            if (options_.verbose && index) said_(fmt::format("host {}: {}", name(*index), line));
          },
      .ended = [this](core::NodeId node, const core::Status& why) { on_ended(node, why); }};
  launcher::SpawnOptions spawn;
  spawn.environment = options_.environment;
  spawn.limit = options_.limit;
  for (const HostsOptions::Host& host : options_.hosts) {
    slots_.push_back({0, nullptr, host.here || options_.ssh.empty()});
    auto& way = slots_.back().forked ? forker_ : spawner_;
    if (way) continue;
    auto spawner = slots_.back().forked
                       ? launcher::make_fork_spawner(loop_, *secret, events, spawn)
                       : launcher::make_ssh_spawner(loop_, *secret, events, spawn, options_.ssh);
    if (!spawner.ok()) return spawner.status();
    way = std::move(*spawner);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) start(i);
  return {};
}

void Hosts::start(std::size_t index) {
  Slot& slot = slots_[index];
  const core::NodeId id = slot.id = ++last_id_;
  RemoteNode::Events events{.up = [this, id] { on_up(id); },
                            .ended = [this, id](const core::Status& why) { on_failed(id, why); }};
  events.silent = [this, id](bool silent) {
    if (elastic_.silent) elastic_.silent(id, silent);
  };
  events.membership = [this, id](const core::Message& message) {
    if (elastic_.membership) elastic_.membership(id, message);
  };
  if (slot.node) retired_.push_back(std::move(slot.node));
  slot.node = std::make_unique<RemoteNode>(loop_, name(index), options_.version, std::move(events));
  spawner_of(slot).start({id,
                          name(index),
                          options_.program,
                          {"--node-agent", options_.job, std::to_string(id), endpoints_},
                          options_.wdir});
  ++processes_;
}

bool Hosts::is_up(std::size_t index) const {
  return slots_.at(index).node->state() == RemoteNode::State::kUp;
}

std::optional<std::size_t> Hosts::index_of(core::NodeId node) const {
  const auto found = std::ranges::find(slots_, node, &Slot::id);
  if (found == slots_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - slots_.begin());
}

std::vector<core::Status> Hosts::bring_up() {
  const auto starting = [this] {
    return std::ranges::any_of(
        slots_, [](const Slot& slot) { return slot.node->state() == RemoteNode::State::kStarting; });
  };
  const auto rounds = std::chrono::seconds(slots_.size() / 32);
  const auto deadline = std::chrono::steady_clock::now() + 2 * options_.limit + rounds;
  while (starting()) {
    if (loop_.run_one_until(deadline) > 0) continue;
    for (std::size_t i = 0; i < slots_.size(); ++i) on_late(i);
  }
  return failures_;
}

void Hosts::on_linked(std::shared_ptr<launcher::SecureChannel> channel) {
  const auto index = index_of(channel->peer());
  if (!index) return channel->close();
  slots_[*index].node->attach(std::move(channel));
}

void Hosts::on_late(std::size_t index) {
  RemoteNode& node = *slots_[index].node;
  if (node.state() != RemoteNode::State::kStarting) return;
  node.fail(core::deadline_exceeded(fmt::format(
      "host {}: its agent was started, but did not connect back to port {} of this host within {:g} s",
      name(index), listener_->port(), 2 * std::chrono::duration<double>(options_.limit).count())));
}

void Hosts::on_up(core::NodeId node) {
  late_.erase(node);
  const auto index = index_of(node);
  if (out_ != nullptr && index && elastic_.came) elastic_.came(*index);
}

// Once it was linked the link says what became of the agent.
void Hosts::on_ended(core::NodeId node, const core::Status& why) {
  --processes_;
  const auto index = index_of(node);
  if (index && slots_[*index].node->state() == RemoteNode::State::kStarting) {
    slots_[*index].node->fail(why.ok()
                                  ? core::Status(core::Code::kPeerLost,
                                                 fmt::format("host {}: its agent left at once", name(*index)))
                                  : core::Status(why.code(), "host " + why.message()));
  }
  finish_if_done();
}

void Hosts::on_failed(core::NodeId node, const core::Status& why) {
  late_.erase(node);
  const auto index = index_of(node);
  if (!index) return;
  spawner_of(slots_[*index]).end(node);
  if (!why.ok()) failures_.push_back(why);
  if (lost_ && !why.ok()) lost_(*index, why);
  finish_if_done();
}

void Hosts::bring_back(std::size_t index) {
  if (finished_ || slots_.at(index).node->state() != RemoteNode::State::kEnded) return;
  start(index);
  auto& timer = late_.try_emplace(id(index), loop_).first->second;
  timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(2 * options_.limit));
  timer.async_wait([this, index, node = id(index)](const boost::system::error_code& error) {
    if (!error && id(index) == node) on_late(index);
  });
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
  if (!finished_ || processes_ > 0) return;
  const bool all = std::ranges::all_of(slots_, [](const Slot& slot) { return slot.node->drained(); }) &&
                   std::ranges::all_of(retired_, [](const auto& node) { return node->drained(); });
  if (all) std::exchange(finished_, nullptr)();
}

}  // namespace regroup::node
