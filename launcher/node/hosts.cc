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

core::NodeId node_id(std::size_t index) { return static_cast<core::NodeId>(index + 1); }

}  // namespace

Hosts::Hosts(boost::asio::io_context& loop, HostsOptions options,
             std::function<void(const std::string&)> said)
    : loop_(loop), options_(std::move(options)), said_(std::move(said)) {
  for (std::size_t i = 0; i < options_.names.size(); ++i) {
    RemoteNode::Events events{.up = [] {},
                              .ended = [this, i](const core::Status& why) { on_failed(i, why); }};
    nodes_.push_back(
        std::make_unique<RemoteNode>(loop_, options_.names[i], options_.version, std::move(events)));
  }
}

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
  launcher::SpawnEvents events{
      .up = [](core::NodeId) {},
      .line =
          [this](core::NodeId node, const std::string& line) {
            if (options_.verbose) said_(fmt::format("host {}: {}", options_.names.at(node - 1U), line));
          },
      .ended = [this](core::NodeId node, const core::Status& why) { on_ended(node - 1U, why); }};
  launcher::SpawnOptions spawn;
  spawn.environment = options_.environment;
  spawn.limit = options_.limit;
  auto spawner =
      options_.ssh.empty()
          ? launcher::make_fork_spawner(loop_, *secret, std::move(events), std::move(spawn))
          : launcher::make_ssh_spawner(loop_, *secret, std::move(events), std::move(spawn), options_.ssh);
  if (!spawner.ok()) return spawner.status();
  spawner_ = std::move(*spawner);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    spawner_->start(
        {node_id(i),
         options_.names[i],
         options_.program,
         {"--node-agent", options_.job, std::to_string(node_id(i)), launcher::to_string(*endpoints)},
         options_.wdir});
    ++processes_;
  }
  return {};
}

std::vector<core::Status> Hosts::bring_up() {
  const auto starting = [this] {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->state() == RemoteNode::State::kStarting; });
  };
  const auto rounds = std::chrono::seconds(nodes_.size() / 32);
  const auto deadline = std::chrono::steady_clock::now() + 2 * options_.limit + rounds;
  while (starting()) {
    if (loop_.run_one_until(deadline) > 0) continue;
    for (std::size_t i = 0; i < nodes_.size(); ++i) on_late(i);
  }
  return failures_;
}

void Hosts::on_linked(std::shared_ptr<launcher::SecureChannel> channel) {
  const std::size_t index = channel->peer() - std::size_t{1};
  if (index >= nodes_.size()) return channel->close();
  nodes_[index]->attach(std::move(channel));
}

void Hosts::on_late(std::size_t index) {
  if (nodes_[index]->state() != RemoteNode::State::kStarting) return;
  nodes_[index]->fail(core::deadline_exceeded(fmt::format(
      "host {}: its agent was started, but did not connect back to port {} of this host within {:g} s",
      options_.names[index], listener_->port(), 2 * std::chrono::duration<double>(options_.limit).count())));
}

// Once it was linked the link says what became of the agent.
void Hosts::on_ended(std::size_t index, const core::Status& why) {
  --processes_;
  if (nodes_[index]->state() == RemoteNode::State::kStarting) {
    nodes_[index]->fail(
        why.ok() ? core::Status(core::Code::kPeerLost,
                                fmt::format("host {}: its agent left at once", options_.names[index]))
                 : core::Status(why.code(), "host " + why.message()));
  }
  finish_if_done();
}

void Hosts::on_failed(std::size_t index, const core::Status& why) {
  if (spawner_) spawner_->end(node_id(index));
  if (!why.ok()) failures_.push_back(why);
  if (lost_ && !why.ok()) lost_(index, why);
  finish_if_done();
}

std::string Hosts::own_address() const {
  const auto endpoints = launcher::own_endpoints(0);
  return endpoints.ok() && !endpoints->empty() ? endpoints->front().address().to_string() : "127.0.0.1";
}

void Hosts::set_up(const std::vector<Setup>& setups) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (setups.at(i).stdin_to.to == launcher::StdinRequest::To::kRank) reader_ = i;
    nodes_[i]->set_up(setups[i]);
  }
}

void Hosts::serve(launcher::NodeEvents events, Lost lost, launcher::Sink& out, launcher::Sink& err) {
  lost_ = std::move(lost);
  for (const auto& node : nodes_) node->serve(events, out, err);
  if (reader_) nodes_[*reader_]->feed_input();
}

void Hosts::signal_all(int signal) {
  for (const auto& node : nodes_) node->signal_all(signal);
}

std::size_t Hosts::running() const {
  std::size_t sum = 0;
  for (const auto& node : nodes_) sum += node->running();
  return sum;
}

void Hosts::finish(std::function<void()> then) {
  finished_ = std::move(then);
  for (const auto& node : nodes_) {
    node->on_drained([this] { finish_if_done(); });
    node->finish();
  }
  finish_if_done();
}

void Hosts::finish_if_done() {
  if (!finished_ || processes_ > 0) return;
  const bool all =
      std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->drained(); });
  if (all) std::exchange(finished_, nullptr)();
}

}  // namespace regroup::node
