// Messages, deaths and time of a simulated job, and what must hold of every World.
#include "tests/membership/sim_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace regroup::membership {

SimJob::SimJob(SimOptions o) : options(std::move(o)) {
  if (options.hosts.empty()) (void)add_host(options.arena_slots);
  begin();
  for (const std::uint32_t slots : options.hosts) (void)add_host(slots);
  if (!options.hosts.empty()) say_of_nodes(proto::NodesKnown{});
}

void SimJob::begin() {
  JobInfo info{.id = "sim"};
  Policy policy = options.policy;
  policy.any_fingerprint = options.any_fingerprint;
  if (!options.hosts.empty()) info.nodes.clear();
  coordinator.emplace(policy, info, incarnation, past);
  perform(coordinator->tick(now));
}

proto::NodeId SimJob::add_host(std::uint32_t slots, bool leased) {
  const auto node = static_cast<proto::NodeId>(nodes_.size());
  const AgentOptions agent{.node = node,
                           .slots = options.arena_slots,
                           .shards = options.policy.shards,
                           .seed = 7,
                           .any_fingerprint = options.any_fingerprint,
                           .kept_results = options.policy.kept_results,
                           .learn_above = options.policy.learn_above,
                           .endpoints = options.hosts.empty() ? "" : "there",
                           .resumed_fingerprint = options.resumed_fingerprint};
  nodes_.emplace(node, Node{AgentCore(agent), slots, leased});
  if (!options.hosts.empty()) say_of_nodes(news_of(node));
  return node;
}

proto::NodeUp SimJob::news_of(proto::NodeId node) const {
  const Node& it = nodes_.at(node);
  return {node, fmt::format("h{}", node), it.slots, it.leased, it.for_now};
}

void SimJob::lose_host(proto::NodeId node) {
  Node& lost = nodes_.at(node);
  if (!std::exchange(lost.up, false)) return;
  lost.to_agent.clear();
  lost.to_coordinator.clear();
  for (const auto& [id, m] : members) {
    if (m.node == node) known_lost_.insert(id);
  }
  say_of_nodes(proto::NodeLost{node, fmt::format("host h{} is lost", node)});
}

void SimJob::resize_host(proto::NodeId node, std::uint32_t slots, bool for_now) {
  nodes_.at(node).slots = slots;
  nodes_.at(node).for_now = for_now;
  say_of_nodes(news_of(node));
}

std::size_t SimJob::living_on(proto::NodeId node) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      members, [&](const auto& m) { return m.second.node == node && m.second.alive; }));
}

std::vector<proto::NodeId> SimJob::hosts() const {
  std::vector<proto::NodeId> up;
  for (const auto& [id, node] : nodes_) {
    if (node.up) up.push_back(id);
  }
  return up;
}

bool SimJob::transfer_is_halfway(proto::NodeId id) const {
  const Node& node = nodes_.at(id);
  return node.fetch && !node.gave.empty() && !node.received.snapshot;
}

void SimJob::say_of_nodes(proto::Body body) {
  if (!end) perform(coordinator->handle(now, {}, {0, std::move(body)}));
}

template <class T>
SimJob::Node* SimJob::with(std::deque<T> Node::*queue, std::optional<proto::NodeId> node) {
  for (auto& [id, it] : nodes_) {
    if ((!node || *node == id) && !(it.*queue).empty()) return &it;
  }
  return nullptr;
}

void SimJob::perform(Effects effects) {
  for (Effect& effect : effects) {
    if (auto* send = std::get_if<ToAgent>(&effect)) {
      for (auto& [id, node] : nodes_) {
        const bool meant = send->node == proto::kEveryNode || send->node == id;
        if (meant && node.up) node.to_agent.push_back({incarnation, send->body, id});
      }
    } else if (auto* answer = std::get_if<ToClient>(&effect)) {
      if (auto* reply = std::get_if<proto::Reply>(&answer->body)) reply_ = *reply;
    } else if (auto* write = std::get_if<Journal>(&effect)) {
      past.add(write->entry);
      if (const auto* world = std::get_if<proto::World>(&write->entry)) {
        check_world(*world);
        journal = *world;
        worlds.push_back(*world);
      }
    } else if (auto* say = std::get_if<Say>(&effect)) {
      says.push_back(say->sentence);
    } else if (auto* done = std::get_if<Done>(&effect)) {
      if (end) violated("Done twice");
      end = *done;
    }
  }
}

void SimJob::perform(proto::NodeId id, AgentEffects effects) {
  Node& node = nodes_.at(id);
  for (AgentEffect& effect : effects) {
    if (auto* send = std::get_if<ToCoordinator>(&effect)) {
      if (node.up)
        node.to_coordinator.push_back({node.agent.incarnation(), std::move(send->body), id});
    } else if (auto* start = std::get_if<StartMember>(&effect)) {
      if (members.contains(start->start.member)) violated("a MemberId was used twice");
      members[start->start.member].start = start->start;
      members[start->start.member].node = id;
    } else if (auto* victim = std::get_if<KillMember>(&effect)) {
      kill(victim->member);
    } else if (auto* go = std::get_if<ReleaseMember>(&effect)) {
      node.agent.release(go->slot);
    } else if (auto* warn = std::get_if<Warn>(&effect)) {
      says.push_back(warn->sentence);
    } else if (auto* fetch = std::get_if<Fetch>(&effect)) {
      end_fetch(id);
      node.fetch = fetch->transfer;
      node.received = {
          .snapshot = false, .kept_up_to = fetch->transfer.step, .newest = fetch->transfer.step};
    } else if (std::holds_alternative<StopFetch>(effect)) {
      end_fetch(id);
    } else if (auto* tell = std::get_if<ToMember>(&effect)) {
      SimMember& m = members.at(tell->member);
      if (auto* welcome = std::get_if<proto::Welcome>(&tell->body)) m.slot = welcome->slot;
      if (auto* all = std::get_if<proto::PeerAddresses>(&tell->body);
          all != nullptr && all->generation == m.addresses)
        m.known = all->members.size();
      if (auto* refused = std::get_if<proto::Refused>(&tell->body)) {
        m.refused = refused->reason;
        exit(tell->member, 1);
      }
    }
  }
}

void SimJob::check_world(const proto::World& w) {
  if (!worlds.empty()) {
    if (w.generation <= worlds.back().generation) violated("a generation number did not grow");
    if (w.resume < worlds.back().resume) violated("resume went back");
    const auto stayed = [&](const proto::WorldMember& m) {
      return worlds.back().rank_of(m.id) >= 0;
    };
    if (std::ranges::none_of(w.members, stayed))
      violated(fmt::format("World {} has no member of the one before", w.generation));
  }
  bool finished = false, holder = false;
  for (const auto& [id, m] : members) {
    finished |= m.slot && agent(m.node).arena().member_slot(*m.slot).finished.load() != 0;
  }
  // Where all hosts are wanted back what is left ends its step and leaves.
  const auto none = [](const auto& node) { return node.second.slots == 0; };
  const bool leaves = !options.hosts.empty() && std::ranges::all_of(nodes_, none);
  if (w.size() < options.policy.min && !finished && !leaves)
    violated(fmt::format("World {} below min", w.generation));
  if (w.size() > options.policy.max) violated(fmt::format("World {} above max", w.generation));
  for (const proto::WorldMember& m : w.members) {
    holder |= !m.needs_state && m.from_step <= w.resume.step();
    if (known_lost_.contains(m.id))
      violated(fmt::format("member {} is lost and in World {}", m.id, w.generation));
    if (members.at(m.id).slot != m.slot_id.slot || members.at(m.id).node != m.slot_id.node)
      violated("a member sits on another's slot");
  }
  if (!holder) violated(fmt::format("nobody in World {} has the state", w.generation));
  if (w.plan.size() != w.shards) violated("the plan does not cover every leaf");
  for (const proto::SlotId& slot_id : w.plan) {
    const auto there = [&](const proto::WorldMember& m) { return m.slot_id.node == slot_id.node; };
    if (std::ranges::none_of(w.members, there))
      violated(fmt::format("the plan of World {} counts on a host without a member", w.generation));
  }
}

bool SimJob::deliver_to_agent(std::optional<proto::NodeId> at) {
  Node* const node = with(&Node::to_agent, at);
  if (node == nullptr) return false;
  const proto::Message message = std::move(node->to_agent.front());
  node->to_agent.pop_front();
  perform(message.node, node->agent.handle({}, message));
  return true;
}

bool SimJob::deliver_to_coordinator(std::optional<proto::NodeId> at) {
  Node* const node = with(&Node::to_coordinator, at);
  if (node == nullptr) return false;
  const proto::Message message = std::move(node->to_coordinator.front());
  node->to_coordinator.pop_front();
  if (const auto* lost = std::get_if<proto::MemberLost>(&message.body))
    known_lost_.insert(lost->member);
  perform(coordinator->handle(now, {Sender::Kind::kAgent, message.node}, message));
  return true;
}

bool SimJob::report_death(std::optional<proto::NodeId> at) {
  Node* const node = with(&Node::deaths, at);
  if (node == nullptr) return false;
  const Death death = node->deaths.front();
  node->deaths.pop_front();
  const SimMember& m = members.at(death.id);
  if (death.by_futex) {
    perform(m.node, node->agent.on_owner_died(*m.slot));
  } else {
    const int pid = 1000 + static_cast<int>(death.id);
    perform(m.node, node->agent.on_reaped(death.id, pid, death.status, death.signal));
  }
  return true;
}

void SimJob::die(proto::MemberId id, int status, int signal) {
  SimMember& m = members.at(id);
  if (!m.alive) return;
  m.alive = false;
  auto& deaths = nodes_.at(m.node).deaths;
  if (m.ready) deaths.push_back({id, true, 0, 0});
  deaths.push_back({id, false, status, signal});
}

void SimJob::kill(proto::MemberId id, int signal) { die(id, 0, signal); }
void SimJob::exit(proto::MemberId id, int status) { die(id, status, 0); }

void SimJob::from_member(proto::MemberId id, proto::Body body) {
  const proto::NodeId node = member(id).node;
  perform(node, agent(node).handle({id}, {0, std::move(body)}));
}

proto::Reply SimJob::ask(const proto::Body& request) {
  reply_.reset();
  perform(coordinator->handle(now, {Sender::Kind::kClient, 1}, {0, request}));
  return reply_.value_or(proto::Reply{false, "no answer"});
}

void SimJob::restart_coordinator(bool lose_messages) {
  if (lose_messages) {
    for (auto& [id, node] : nodes_) {
      node.to_agent.clear();
      node.to_coordinator.clear();
    }
  }
  known_lost_.clear();
  ++incarnation;
  begin();
  if (options.hosts.empty()) return;
  for (const auto& [id, node] : nodes_) {
    if (node.up) say_of_nodes(news_of(id));
  }
  say_of_nodes(proto::NodesKnown{});
}

void SimJob::pass(base::Duration time) {
  now += time;
  if (end) return;
  if (const auto at = coordinator->next_deadline(); at && now >= *at)
    perform(coordinator->tick(now));
}

bool SimJob::run_until(const std::function<bool()>& done) {
  const base::TimePoint limit = now + std::chrono::minutes(10);
  while (now < limit && broken.empty()) {
    if (done()) return true;
    if (end) return false;
    bool moved = report_death();
    for (auto& [id, node] : nodes_) moved |= attend(id);
    while (deliver_to_agent() || deliver_to_coordinator()) moved = true;
    std::vector<proto::MemberId> ids;
    for (const auto& [id, m] : members) ids.push_back(id);
    for (proto::MemberId id : ids) {
      if (!done()) moved |= act(members.at(id));
    }
    pass(std::chrono::milliseconds(moved ? 1 : 50));
  }
  return done();
}

bool SimJob::steady(proto::Generation g, std::uint32_t size) {
  return run_until([&] {
    if (generation() != g || journal->size() != size) return false;
    for (const proto::WorldMember& m : journal->members) {
      const SimMember& sim = members.at(m.id);
      if (!sim.alive || sim.world.generation != g || !sim.settled) return false;
    }
    return true;
  });
}

void SimJob::bury() {
  while (report_death()) {
  }
}

bool SimJob::reach(proto::Step step) {
  return run_until([&] {
    for (const auto& [id, m] : members) {
      if (m.alive && m.applied < step) return false;
    }
    return generation() > 0;
  });
}

bool SimJob::heard(const std::string& words) const {
  for (const std::string& sentence : says) {
    if (sentence.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace regroup::membership
