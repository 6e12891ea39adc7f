// The controller and the agents of a simulated cluster: what launcher/job/elastic_controller.cc,
// launcher/agent/hosts.cc, relay.cc and node_job.cc are on real hosts, with the same decoding,
// encoding and Router.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/status.h"
#include "launcher/agent/wire.h"
#include "shmem/doorbell.h"
#include "tests/scale/cluster.h"

namespace regroup::scale {
namespace {

constexpr ProcessId kCoordinatorProcess = 0;
constexpr std::size_t kLong = 4096;     // bytes of a message that many may get
constexpr std::uint32_t kMeasured = 8;  // of them decode it indeed
constexpr std::size_t kRemembered = 16;

// std::vector's == compares byte by byte, which took 60 % of a run.
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

Bytes shared(std::vector<std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
}

}  // namespace

void Cluster::tell_coordinator(proto::Body body) {
  network_.send(kCoordinatorProcess, shared(proto::encode({0, std::move(body), 0})));
}

void Cluster::from_coordinator(const proto::Message& message) {
  std::vector<proto::NodeId> nodes{message.node};
  if (message.node == proto::kEveryNode) {
    nodes.clear();
    for (proto::NodeId node = 1; node <= agents_.size(); ++node) {
      if (controller_.tree().has(node)) nodes.push_back(node);
    }
  }
  const agent::Message said = agent::Membership{message};
  const Bytes bytes = shared(agent::encode(said));
  std::vector<std::uint64_t> numbers;
  for (const proto::NodeId node : nodes) {
    auto& session = sessions_[node - 1];
    numbers.push_back(session ? session->enqueue(bytes, agent::wants_answer(said)) : 0);
  }
  for (const agent::Frame& frame :
       controller_.down(nodes, *bytes, agent::wants_answer(said), numbers))
    network_.send(process(frame.child), frame.bytes);
}

void Cluster::at_controller(proto::NodeId child, const agent::Message& message) {
  if (const auto* gathered = std::get_if<agent::Gathered>(&message)) {
    for (const agent::Relayed& relayed : gathered->messages) unwrap(child, relayed);
  } else if (const auto* relayed = std::get_if<agent::Relayed>(&message)) {
    unwrap(child, *relayed);
  } else if (const auto* ack = std::get_if<agent::Ack>(&message)) {
    ack_at_controller(child, *ack);
  } else if (const auto* membership = std::get_if<agent::Membership>(&message)) {
    network_.send(
        kCoordinatorProcess,
        shared(proto::encode({membership->message.incarnation, membership->message.body, child})));
  } else if (const auto* news = std::get_if<agent::ChildEvent>(&message)) {
    lose_child(0, news->node);
  }
}

// As Hosts::unwrap().
void Cluster::unwrap(proto::NodeId child, const agent::Relayed& relayed) {
  const proto::NodeId node = relayed.nodes.at(0);
  auto& session = sessions_[node - 1];
  if (!session || !controller_.tree().within(node, child))
    return;  // it was lost, or has moved and says it again
  const std::uint64_t number = relayed.numbers.empty() ? 0 : relayed.numbers.at(0);
  if (number != 0 && !session->accept(number, relayed.message.size())) return;
  const auto said = agent::decode(relayed.message);
  if (!said.ok()) return broken_.push_back(said.status().message());
  if (const auto due = session->ack_due())
    tell_agent(node, shared(agent::encode(agent::Ack{*due})), 0);
  at_controller(node, *said);
}

void Cluster::tell_agent(proto::NodeId node, const Bytes& bytes, std::uint64_t number) {
  const proto::NodeId nodes[] = {node};
  const std::uint64_t numbers[] = {number};
  for (const agent::Frame& frame : controller_.down(nodes, *bytes, false, numbers))
    network_.send(process(frame.child), frame.bytes);
}

// As Hosts::adopt().
void Cluster::ack_at_controller(proto::NodeId node, const agent::Ack& ack) {
  sessions_[node - 1]->acknowledge(ack.number);
  if (ack.action != agent::Ack::Action::kReparent) return;
  controller_.tree().move(node, 0);
  for (const proto::NodeId each : controller_.tree().below(node)) {
    const agent::ReliableSession& session = *sessions_[each - 1];
    tell_agent(
        each,
        shared(agent::encode(agent::Ack{session.accepted(), agent::Ack::Action::kRetransmit})), 0);
    for (const agent::ReliableSession::Sent& said : session.unacked())
      tell_agent(each, said.message, said.number);
  }
}

// Long bytes that many agents get alike are decoded by the first few, whose mean time the others
// are charged: ten thousand agents that decode ten thousand addresses each would take minutes here,
// on one core.
std::shared_ptr<const agent::Message> Cluster::read(const Bytes& bytes) {
  if (bytes->size() < kLong) {
    auto message = agent::decode(*bytes);
    if (message.ok()) return std::make_shared<const agent::Message>(std::move(*message));
    broken_.push_back(message.status().message());
    return nullptr;
  }
  Read* read = nullptr;
  network_.uncounted([&] {
    const auto known = std::ranges::find_if(
        reads_, [&](const Read& each) { return each.bytes == bytes || same(*each.bytes, *bytes); });
    if (known != reads_.end()) {
      read = &*known;
    } else {
      auto message = agent::decode(*bytes);
      if (!message.ok()) return broken_.push_back(message.status().message());
      if (reads_.size() == kRemembered) reads_.pop_front();
      read = &reads_.emplace_back(Read{
          .bytes = bytes, .message = std::make_shared<const agent::Message>(std::move(*message))});
    }
    if (read->times >= kMeasured) return;
    const base::Duration began = thread_time();
    { const auto again = agent::decode(*bytes); }
    read->sum += thread_time() - began;
    ++read->times;
  });
  if (read == nullptr) return nullptr;
  network_.waited(read->sum / read->times);
  return read->message;
}

void Cluster::at_agent(proto::NodeId node, proto::NodeId from, const Bytes& bytes) {
  Agent& agent = *agents_[node - 1];
  const auto message = read(bytes);
  if (message == nullptr) return;
  if (from == agent.parent) return from_above(node, *message);
  if (!agent.router.tree().has(from)) return;  // it was given up
  const auto said = agent.router.up(from, *message);
  if (!said) return broken_.push_back(fmt::format("node {} speaks for others", from));
  for (const agent::Message& each : *said) pass(node, each);
}

// As Uplink::take() and Relay::take().
void Cluster::from_above(proto::NodeId node, const agent::Message& message) {
  Agent& agent = *agents_[node - 1];
  if (const auto* ack = std::get_if<agent::Ack>(&message)) return ack_at_agent(node, *ack);
  if (const auto* end = std::get_if<agent::EndAgent>(&message)) {
    for (const agent::Message& each : agent.router.lose(end->node)) pass(node, each);
    return;
  }
  const auto* relayed = std::get_if<agent::Relayed>(&message);
  if (relayed == nullptr) return own(node, message);
  agent::Relayed others = *relayed;
  std::uint64_t number = 0;
  if (const auto self = std::ranges::find(others.nodes, node); self != others.nodes.end()) {
    const std::ptrdiff_t at = self - others.nodes.begin();
    number = others.numbers.at(static_cast<std::size_t>(at));
    others.nodes.erase(others.nodes.begin() + at);
    others.numbers.erase(others.numbers.begin() + at);
  }
  for (const agent::Frame& frame : agent.router.relay(others))
    network_.send(process(frame.child), frame.bytes);
  if (number == 0 || !agent.session->accept(number, relayed->message.size())) return;
  if (const auto due = agent.session->ack_due()) pass(node, agent::Ack{*due});
  if (const auto said = read(shared(relayed->message))) own(node, *said);
}

void Cluster::own(proto::NodeId node, const agent::Message& message) {
  if (std::holds_alternative<agent::EndAgent>(message)) return from_above(node, message);
  const auto* membership = std::get_if<agent::Membership>(&message);
  if (membership == nullptr) return;
  const auto* announce = std::get_if<proto::Announce>(&membership->message.body);
  if (announce != nullptr) newest_ = announce->world;
  perform(node, agents_[node - 1]->core.handle({}, membership->message));
  if (announce != nullptr) network_.uncounted([&] { enter(node); });
}

// As Uplink::on_ack() ...
void Cluster::ack_at_agent(proto::NodeId node, const agent::Ack& ack) {
  Agent& agent = *agents_[node - 1];
  agent.session->acknowledge(ack.number);
  if (ack.action != agent::Ack::Action::kRetransmit) return;
  agent.adopting = false;
  for (const agent::ReliableSession::Sent& said : agent.session->unacked())
    pass(node, agent::Relayed{{node}, *said.message, said.answered, {said.number}});
}

// ... and adopt().
void Cluster::orphaned(proto::NodeId node) {
  Agent& agent = *agents_[node - 1];
  agent.parent = 0;
  agent.adopting = true;
  network_.send(
      process(0),
      shared(agent::encode(agent::Ack{agent.session->accepted(), agent::Ack::Action::kReparent})));
}

// Sends an agent's own message to the controller.
void Cluster::up(proto::NodeId node, const agent::Message& message) {
  Agent& agent = *agents_[node - 1];
  if (!agent.session) return pass(node, message);
  const Bytes bytes = shared(agent::encode(message));
  const std::uint64_t number = agent.session->enqueue(bytes, agent::is_answer(message));
  pass(node, agent::Relayed{{node}, *bytes, agent::is_answer(message), {number}});
}

// And what those below it do: lost where there is no way.
void Cluster::pass(proto::NodeId node, const agent::Message& message) {
  const Agent& agent = *agents_[node - 1];
  if (!agent.adopting) network_.send(process(agent.parent), shared(agent::encode(message)));
}

// As Hosts::on_ended() has it: those below are awaited, those above are to forget it.
void Cluster::lose_child(proto::NodeId node, proto::NodeId child) {
  const std::string why = fmt::format("host h{}: the connection to its agent is lost", child);
  if (node == 0) {
    for (auto above = controller_.tree().parent(child); above && *above != 0;
         above = controller_.tree().parent(*above)) {
      const Bytes bytes = shared(agent::encode(agent::EndAgent{child}));
      auto& session = sessions_[*above - 1];
      tell_agent(*above, bytes, session ? session->enqueue(bytes, false) : 0);
    }
    for (const proto::NodeId orphan : controller_.tree().children(child))
      controller_.tree().detach(orphan);
    controller_.tree().prune(child);
    return tell_coordinator(proto::NodeLost{child, why});
  }
  for (const agent::Message& said : agents_[node - 1]->router.lose(child)) pass(node, said);
  up(node, agent::ChildEvent{agent::ChildEvent::Kind::kLost, child, why, base::Code::kPeerLost});
}

void Cluster::perform(proto::NodeId node, membership::AgentEffects effects) {
  Agent& agent = *agents_[node - 1];
  for (membership::AgentEffect& effect : effects) {
    if (auto* send = std::get_if<membership::ToCoordinator>(&effect)) {
      up(node, agent::Membership{{agent.core.incarnation(), std::move(send->body), node}});
    } else if (auto* start = std::get_if<membership::StartMember>(&effect)) {
      start_member(node, start->start.member);
    } else if (auto* tell = std::get_if<membership::ToMember>(&effect)) {
      const auto* all = std::get_if<proto::PeerAddresses>(&tell->body);
      if (all != nullptr) agent.met += all->members.size();
      if (all != nullptr && agent.met == world().size()) agent.addresses = all->generation;
      if (const auto* refused = std::get_if<proto::Refused>(&tell->body))
        broken_.push_back(refused->reason);
    } else if (auto* warn = std::get_if<membership::Warn>(&effect)) {
      broken_.push_back(warn->sentence);
    }
  }
}

// It is there at once.
void Cluster::start_member(proto::NodeId node, proto::MemberId member) {
  network_.schedule(process(node), network_.now(), [this, node, member] {
    Agent& agent = *agents_[node - 1];
    proto::Join join{
        .member = member, .elements = 1, .model = "model", .fingerprint = "fingerprint"};
    perform(node, agent.core.handle({member}, {0, join}));
    network_.uncounted([&] { forget_pages(node); });
    perform(node, agent.core.handle({member}, {0, proto::Ready{}}));
  });
}

void Cluster::enter(proto::NodeId node) {
  Agent& agent = *agents_[node - 1];
  agent.world = newest_->generation;
  forget_pages(node);
  if (!agent.core.arena().mapped()) return;
  shmem::MemberSlot& member_slot = agent.core.arena().member_slot(0);
  if (member_slot.dead.load() != 0) return;
  const proto::Position open = proto::Position::of(newest_->resume.step() + 1);
  member_slot.state.store(
      proto::StateWord{proto::Phase::kOpen, false, newest_->generation, open}.pack());
  member_slot.left_generation.store(newest_->generation);
  member_slot.proved.store(newest_->generation);
}

// Frees the pages of an arena except its header and slot, which alone are read again.
void Cluster::forget_pages(proto::NodeId node) {
  const shmem::Arena& arena = agents_[node - 1]->core.arena();
  if (!arena.mapped()) return;
  constexpr off_t kKept = 8192;
  const auto bytes = static_cast<off_t>(shmem::arena_bytes(arena.spec()));
  if (::fallocate(arena.memfd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kKept,
                  bytes - kKept) != 0)
    broken_.push_back(base::system_error("fallocate", "arena", errno).message());
}

}  // namespace regroup::scale
