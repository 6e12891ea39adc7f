// The hub and the agents of a simulated cluster: what launcher/cmd/elastic_hub.cc, launcher/node/hosts.cc,
// relay.cc and node_job.cc are on real hosts, with the same decoding, encoding and Courier.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/doorbell.h"
#include "launcher/node/wire.h"
#include "tests/scale/cluster.h"

namespace regroup::scale {
namespace {

constexpr ProcessId kCoordinator = 0;

Bytes shared(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

void Cluster::tell_coordinator(core::Body body) {
  network_.send(kCoordinator, shared(core::encode({0, std::move(body), 0})));
}

void Cluster::from_coordinator(const core::Message& message) {
  std::vector<core::NodeId> nodes{message.node};
  if (message.node == core::kEveryNode) {
    nodes.clear();
    for (core::NodeId node = 1; node <= agents_.size(); ++node) {
      if (hub_.tree().has(node)) nodes.push_back(node);
    }
  }
  const node::Message said = node::Membership{message};
  for (const node::Parcel& parcel : hub_.down(nodes, node::encode(said), node::wants_answer(said)))
    network_.send(process(parcel.child), parcel.bytes);
}

void Cluster::at_hub(core::NodeId child, const node::Message& message) {
  if (const auto* gathered = std::get_if<node::Gathered>(&message)) {
    for (const node::Relayed& relayed : gathered->messages) unwrap(relayed);
  } else if (const auto* relayed = std::get_if<node::Relayed>(&message)) {
    unwrap(*relayed);
  } else if (const auto* membership = std::get_if<node::Membership>(&message)) {
    network_.send(kCoordinator,
                  shared(core::encode({membership->message.incarnation, membership->message.body, child})));
  } else if (const auto* news = std::get_if<node::ChildNews>(&message)) {
    lose_child(0, news->node);
  }
}

void Cluster::unwrap(const node::Relayed& relayed) {
  const auto said = node::decode(relayed.message);
  if (!said.ok()) return broken_.push_back(said.status().message());
  at_hub(relayed.nodes.at(0), *said);
}

void Cluster::at_agent(core::NodeId node, core::NodeId from, const Bytes& bytes) {
  Agent& agent = *agents_[node - 1];
  auto message = node::decode(*bytes);
  if (!message.ok()) return broken_.push_back(message.status().message());
  if (agent.courier.tree().has(from) && from != 0) {
    const auto said = agent.courier.up(from, *message);
    if (!said) return broken_.push_back(fmt::format("node {} speaks for others", from));
    for (const node::Message& each : *said) up(node, each);
  } else if (const auto* relayed = std::get_if<node::Relayed>(&*message)) {
    for (const node::Parcel& parcel : agent.courier.relay(*relayed))
      network_.send(process(parcel.child), parcel.bytes);
  } else if (auto* membership = std::get_if<node::Membership>(&*message)) {
    auto* announce = std::get_if<core::Announce>(&membership->message.body);
    if (announce != nullptr) {
      network_.uncounted([&] {  // it has read it for itself; ten thousand copies need not be kept
        if (!newest_ || newest_->generation != announce->world->generation) newest_ = announce->world;
        announce->world = newest_;
      });
    }
    perform(node, agent.core.handle({}, membership->message));
    if (announce != nullptr) network_.uncounted([&] { enter(node); });
  }
}

void Cluster::up(core::NodeId node, const node::Message& message) {
  const core::NodeId parent = *hub_.tree().parent(node);
  network_.send(process(parent), shared(node::encode(message)));
}

void Cluster::lose_child(core::NodeId node, core::NodeId child) {
  const std::string why = fmt::format("host h{}: the connection to its agent is lost", child);
  if (node == 0) {
    hub_.tree().prune(child);
    return tell_coordinator(core::NodeLost{child, why});
  }
  for (const node::Message& said : agents_[node - 1]->courier.lose(child)) up(node, said);
  up(node, node::ChildNews{node::ChildNews::Kind::kLost, child, why, core::Code::kPeerLost});
}

void Cluster::perform(core::NodeId node, membership::AgentEffects effects) {
  Agent& agent = *agents_[node - 1];
  for (membership::AgentEffect& effect : effects) {
    if (auto* send = std::get_if<membership::ToCoordinator>(&effect)) {
      up(node, node::Membership{{agent.core.incarnation(), std::move(send->body), node}});
    } else if (auto* start = std::get_if<membership::StartMember>(&effect)) {
      start_member(node, start->start.member);
    } else if (auto* tell = std::get_if<membership::ToMember>(&effect)) {
      const auto* all = std::get_if<core::Contacts>(&tell->body);
      if (all != nullptr) agent.met += all->members.size();
      if (all != nullptr && agent.met == world().size()) agent.contacts = all->generation;
      if (const auto* refused = std::get_if<core::Refused>(&tell->body)) broken_.push_back(refused->reason);
    } else if (auto* warn = std::get_if<membership::Warn>(&effect)) {
      broken_.push_back(warn->sentence);
    }
  }
}

// It is there at once.
void Cluster::start_member(core::NodeId node, core::MemberId member) {
  network_.schedule(process(node), network_.now(), [this, node, member] {
    Agent& agent = *agents_[node - 1];
    core::Join join{.member = member, .elements = 1, .model = "model", .fingerprint = "fingerprint"};
    perform(node, agent.core.handle({member}, {0, join}));
    network_.uncounted([&] { forget_pages(node); });
    perform(node, agent.core.handle({member}, {0, core::Ready{}}));
  });
}

void Cluster::enter(core::NodeId node) {
  Agent& agent = *agents_[node - 1];
  agent.world = newest_->generation;
  forget_pages(node);
  if (!agent.core.arena().mapped()) return;
  core::Line& line = agent.core.arena().line(0);
  if (line.dead.load() != 0) return;
  const core::Position open = core::Position::of(newest_->resume.step() + 1);
  line.state.store(core::StateWord{core::Phase::kOpen, false, newest_->generation, open}.pack());
  line.left.store(newest_->generation);
  line.proved.store(newest_->generation);
}

// Of the arena only the header and the line are looked at again.
void Cluster::forget_pages(core::NodeId node) {
  const core::Arena& arena = agents_[node - 1]->core.arena();
  if (!arena.mapped()) return;
  constexpr off_t kKept = 8192;
  const auto bytes = static_cast<off_t>(core::arena_bytes(arena.spec()));
  if (::fallocate(arena.memfd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kKept, bytes - kKept) != 0)
    broken_.push_back(core::system_error("fallocate", "arena", errno).message());
}

}  // namespace regroup::scale
