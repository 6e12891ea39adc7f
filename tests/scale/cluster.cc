// The changes that are measured, and the coordinator's process.
#include "tests/scale/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "launcher/agent/wire.h"

namespace regroup::scale {
namespace {

constexpr ProcessId kCoordinator = 0, kController = 1;
constexpr base::Duration kLimit = std::chrono::seconds(100);  // of virtual time, for any change

base::Duration clock_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

membership::Policy policy_of(const ClusterOptions& options) {
  const std::uint32_t most = std::min(options.agents + options.joiners, proto::kMaxMembers);
  membership::Policy policy;
  policy.max = most;
  policy.target = options.agents;
  policy.replace = false;
  policy.shards = std::bit_ceil(most);
  return policy;
}

job::JournalFile open_journal(const std::string& path) {
  auto journal = job::JournalFile::open(path);
  if (!journal.ok()) throw std::runtime_error(journal.status().message());
  return std::move(*journal);
}

}  // namespace

Cluster::Cluster(ClusterOptions options)
    : options_(std::move(options)),
      network_(
          options_.agents + options_.joiners + 2, options_.each,
          [this](ProcessId to, ProcessId from, const Bytes& bytes) { handle(to, from, bytes); }),
      journal_(open_journal(options_.journal)),
      coordinator_(policy_of(options_), {.id = "scale", .nodes = {}}, 1) {
  for (std::uint32_t i = 0; i < options_.agents; ++i) add_agent();
}

// As Hosts::plant() has it; those on the way know of it as if they had been told by Reach.
void Cluster::add_agent() {
  const std::size_t index = agents_.size();
  const auto node = static_cast<proto::NodeId>(index + 1);
  agents_.push_back(std::make_unique<Agent>(
      membership::AgentOptions{
          .node = node, .slots = 1, .shards = policy_of(options_).shards, .endpoints = ""},
      node));
  const auto row = agent::parent_in_row(index, options_.radix);
  const proto::NodeId parent = row ? static_cast<proto::NodeId>(*row + 1) : 0;
  controller_.tree().add(node, parent);
  agents_.back()->parent = parent;
  sessions_.emplace_back();
  if (parent != 0) agents_.back()->session.emplace(), sessions_.back().emplace();
  for (auto above = controller_.tree().parent(node); above && *above != 0;
       above = controller_.tree().parent(*above))
    agents_[*above - 1]->router.tree().add(node, parent);
}

std::size_t Cluster::levels() const {
  std::size_t most = 0;
  for (proto::NodeId node = 1; node <= agents_.size(); ++node)
    most = std::max(most, controller_.tree().depth(node).value_or(0));
  return most;
}

bool Cluster::all_know(proto::Generation Agent::*what) const {
  return std::ranges::all_of(agents_, [&](const auto& agent) {
    return !agent->up || (*agent).*what == coordinator_.world().generation;
  });
}

Cost Cluster::measure(const std::string& change, const std::function<void()>& begin,
                      const std::function<bool()>& done) {
  settle();
  network_.reset();
  const base::TimePoint since = network_.now();
  const proto::Generation before = coordinator_.world().generation;
  begin();
  // The last to know is an agent, so nothing else need be looked at after each message.
  while (!done()) {
    if (!broken_.empty() || !network_.step(since + kLimit)) {
      broken_.push_back(fmt::format("{} came to no end: {}", change,
                                    coordinator_.status_json(network_.now()).substr(0, 400)));
      break;
    }
  }
  Cost cost{.change = change,
            .seconds = std::chrono::duration<double>(network_.now() - since).count(),
            .coordinator = network_.traffic(kCoordinator),
            .controller = network_.traffic(kController)};
  for (std::size_t node = 1; node <= agents_.size(); ++node) {
    const Traffic& traffic = network_.traffic(process(static_cast<proto::NodeId>(node)));
    cost.most_messages = std::max(cost.most_messages, traffic.messages_in + traffic.messages_out);
    cost.depth = std::max(cost.depth, traffic.depth);
  }
  cost.worlds = coordinator_.world().generation - before;
  cost.members = coordinator_.world().size();
  return cost;
}

// Until nothing is under way but the coordinator's next look at the clock.
void Cluster::settle() {
  while (network_.step(next_tick_ - std::chrono::nanoseconds(1))) {
  }
}

Cost Cluster::launch() {
  return measure(
      "launch",
      [this] {
        network_.schedule(kCoordinator, network_.now(),
                          [this] { perform(coordinator_.tick(network_.now())); });
        network_.schedule(kController, network_.now(), [this] {
          for (proto::NodeId node = 1; node <= agents_.size(); ++node)
            tell_coordinator(proto::NodeUp{node, fmt::format("h{}", node), 1});
          tell_coordinator(proto::NodesKnown{});
        });
      },
      [this] { return coordinator_.world().generation == 1 && all_know(&Agent::world); });
}

Cost Cluster::fence() {
  return measure(
      "fence",
      [this] {
        for (const proto::WorldMember& m : world().members) {
          network_.schedule(process(m.slot_id.node), network_.now(), [this, m] {
            const proto::MemberAddress own{
                m.id, std::vector<std::byte>(128)};  // as long as one of UCX over TCP
            Agent& agent = *agents_[m.slot_id.node - 1];
            perform(
                m.slot_id.node,
                agent.core.handle({m.id}, {0, proto::PeerAddresses{world().generation, {own}}}));
          });
        }
      },
      [this] { return all_know(&Agent::addresses); });
}

Cost Cluster::lose_member() {
  const proto::WorldMember victim = world().members[world().size() / 3];
  const proto::NodeId node = victim.slot_id.node;
  const proto::Generation next = world().generation + 1;
  return measure(
      "one member lost",
      [&] {
        network_.schedule(process(node), network_.now(), [this, node, victim] {
          perform(node, agents_[node - 1]->core.on_owner_died(victim.slot_id.slot));
          perform(node, agents_[node - 1]->core.on_reaped(victim.id, 4711, 0, 9));
        });
      },
      [&] { return world().generation == next && all_know(&Agent::world); });
}

Cost Cluster::lose_switch(std::uint32_t hosts) {
  const proto::Generation next = world().generation + 1;
  const auto last = static_cast<proto::NodeId>(agents_.size());
  return measure(
      "a switch lost",
      [&] {
        for (proto::NodeId node = last - hosts + 1; node <= last; ++node) {
          agents_[node - 1]->up = false;
          network_.take_down(process(node));
          const proto::NodeId parent = *controller_.tree().parent(node);
          network_.schedule(process(parent), network_.now(),
                            [this, parent, node] { lose_child(parent, node); });
        }
      },
      [&] {
        return world().generation == next && world().size() + hosts < last &&
               all_know(&Agent::world);
      });
}

Cost Cluster::lose_inner(std::uint32_t after) {
  const auto inner = std::ranges::find_if(agents_, [this](const auto& agent) {
    const proto::NodeId node = agent->router.tree().root();
    return agent->up && !controller_.tree().children(node).empty();
  });
  const proto::NodeId node = (*inner)->router.tree().root();
  const auto& members = world().members;
  const proto::WorldMember victim =
      members.back().slot_id.node != node ? members.back() : members.front();
  const std::uint32_t size = world().size();
  return measure(
      "an inner agent lost",
      [&] {
        network_.schedule(process(victim.slot_id.node), network_.now(), [this, victim] {
          const proto::NodeId at = victim.slot_id.node;
          perform(at, agents_[at - 1]->core.on_owner_died(victim.slot_id.slot));
          perform(at, agents_[at - 1]->core.on_reaped(victim.id, 4711, 0, 9));
        });
        for (std::uint32_t step = 0; step < after; ++step) (void)network_.step();
        agents_[node - 1]->up = false;
        network_.take_down(process(node));
        const proto::NodeId parent = *controller_.tree().parent(node);
        network_.schedule(process(parent), network_.now(),
                          [this, parent, node] { lose_child(parent, node); });
        for (const proto::NodeId child : controller_.tree().children(node))
          network_.schedule(process(child), network_.now(), [this, child] { orphaned(child); });
      },
      [&] { return world().size() == size - 2 && all_know(&Agent::world); });
}

Cost Cluster::join() {
  const std::uint32_t size = world().size() + options_.joiners;
  const std::uint32_t wanted = std::min(size, proto::kMaxMembers);
  return measure(
      "joiners",
      [&] {
        network_.schedule(kController, network_.now(), [this] {
          for (std::uint32_t i = 0; i < options_.joiners; ++i) {
            network_.uncounted([this] { add_agent(); });
            const auto node = static_cast<proto::NodeId>(agents_.size());
            tell_coordinator(proto::NodeUp{node, fmt::format("h{}", node), 1});
          }
        });
        while (network_.step(next_tick_ - std::chrono::nanoseconds(1))) {
        }
        network_.schedule(kCoordinator, network_.now(), [this, wanted] {
          perform(coordinator_.handle(network_.now(), {membership::Sender::Kind::kClient, 1},
                                      {0, proto::ResizeRequest{wanted}}));
        });
      },
      [&] { return world().size() == wanted && all_know(&Agent::world); });
}

void Cluster::handle(ProcessId to, ProcessId from, const Bytes& bytes) {
  if (to > kController) return at_agent(to - 1, from - 1, bytes);
  if (from > kController) {
    const auto message = agent::decode(*bytes);
    if (!message.ok()) return broken_.push_back(message.status().message());
    return at_controller(from - 1, *message);
  }
  reader_.append(*bytes);
  const auto message = reader_.next();
  if (!message.ok() || !message->has_value())
    return static_cast<void>(broken_.emplace_back("a frame that does not verify"));
  if (to == kCoordinator) return to_coordinator(**message);
  from_coordinator(**message);
}

void Cluster::to_coordinator(const proto::Message& message) {
  perform(coordinator_.handle(network_.now(), {membership::Sender::Kind::kAgent, message.node},
                              message));
}

void Cluster::perform(membership::Effects effects) {
  for (membership::Effect& effect : effects) {
    if (auto* send = std::get_if<membership::ToAgent>(&effect)) {
      network_.send(kController, std::make_shared<std::vector<std::byte>>(
                                     proto::encode({1, std::move(send->body), send->node})));
    } else if (auto* write = std::get_if<membership::Journal>(&effect)) {
      const base::Duration wall = clock_of(CLOCK_MONOTONIC),
                           thread = clock_of(CLOCK_THREAD_CPUTIME_ID);
      const base::Status status = journal_.append(write->entry);
      if (!status.ok()) broken_.push_back(status.message());
      const base::Duration worked = clock_of(CLOCK_THREAD_CPUTIME_ID) - thread;
      network_.waited(clock_of(CLOCK_MONOTONIC) - wall - worked);
    } else if (auto* done = std::get_if<membership::Done>(&effect)) {
      broken_.push_back("the job has ended: " + done->reason);
    } else if (auto* answer = std::get_if<membership::ToClient>(&effect)) {
      const auto* reply = std::get_if<proto::Reply>(&answer->body);
      if (reply != nullptr && !reply->ok) broken_.push_back(reply->message);
    }
  }
  tick_later();
}

void Cluster::tick_later() {
  const auto next = coordinator_.next_deadline();
  if (!next || (next_tick_ > network_.now() && next_tick_ <= *next)) return;
  next_tick_ = *next;
  network_.schedule(kCoordinator, *next, [this] { perform(coordinator_.tick(network_.now())); });
}

}  // namespace regroup::scale
