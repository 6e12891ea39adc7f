// Nodes that join, change and leave, and the exchange of members' addresses between nodes.
// docs/design/architecture.md sections 2 and 4; docs/design/elastic_hosts.md.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/printable.h"
#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/departure.h"
#include "membership/coordinator/loss.h"
#include "membership/declaration.h"

namespace regroup::membership {

bool Coordinator::on_nodes(const proto::Body& body) {
  if (const auto* up = std::get_if<proto::NodeUp>(&body)) {
    nodes_.contains(up->node) ? change_node(*up) : add_node(*up);
  } else if (const auto* silent = std::get_if<proto::NodeSilent>(&body)) {
    if (nodes_.contains(silent->node)) suspicions_.set_silent(silent->node, silent->silent);
    drop_suspected_nodes();
  } else if (const auto* lost = std::get_if<proto::NodeLost>(&body)) {
    if (nodes_.contains(lost->node))
      lose_node(lost->node, lost->why);
    else if (stage_ == Stage::kNodes)
      outbox_.note(lost->why);
  } else if (const auto* known = std::get_if<proto::NodesKnown>(&body)) {
    on_nodes_known(*known);
  } else {
    return false;
  }
  return true;
}

void Coordinator::change_node(const proto::NodeUp& up) {
  NodeTable::Node& known = *nodes_.find(up.node);
  const std::uint32_t had = known.slots + known.lost;
  if (had == up.slots && known.for_now == up.for_now) return;
  known.lost = std::min(refused_devices_.slots_lost(up.node), up.slots);
  nodes_.resize(up.node, up.slots - known.lost);
  known.for_now = up.for_now;
  count_slots();
  if (nodes_.slots() == 0) size_.take_capacity();
  if (had != up.slots)
    outbox_.remember(fmt::format("host {} has {} now", up.name, base::counted(up.slots, "slot")));
  if (stage_ == Stage::kNodes || stage_ == Stage::kHello) return;
  if (launch_.joined()) leave_node(up.node);
  if (size_.settle_missing(up.node, had, up.slots, up.for_now)) journal_intent();
  grow();
}

void Coordinator::add_node(const proto::NodeUp& up) {
  const std::uint32_t lacked = size_.lacked();
  const std::uint32_t unusable = std::min(refused_devices_.slots_lost(up.node), up.slots);
  nodes_.add(
      up.node,
      {.name = up.name, .slots = up.slots - unusable, .lost = unusable, .for_now = up.for_now});
  round_.ask(up.node, awake_);
  count_slots();
  // The target already counts a node that was there before this coordinator.
  const bool later = stage_ != Stage::kNodes && stage_ != Stage::kHello;
  std::uint32_t leased = 0;
  if (up.leased && later) leased = size_.lease(up.node, up.slots, lacked);
  if (up.leased && !later) size_.restore_lease(up.node, up.slots);
  if (stage_ == Stage::kNodes) return;
  grow(leased);
  outbox_.remember(
      fmt::format("host {} has come, with {}", up.name, base::counted(up.slots, "slot")));
  if (stage_ == Stage::kHello) outbox_.send(up.node, proto::Hello{});
  // The regroup waits for a report of every node, so also for this one, which has no member of the
  // World.
  if (stage_ == Stage::kRegrouping) outbox_.send(up.node, proto::Revoke{highest_});
}

// The allocator takes slots of this host back: members above its slots leave as on a notice, the
// newest first.
void Coordinator::leave_node(proto::NodeId node) {
  const std::uint32_t before = size_.desired(), slots = nodes_.find(node)->slots;
  const bool for_now = nodes_.find(node)->for_now;
  const std::uint32_t wanted = slots == 0 && !for_now ? size_.end_lease(node) : before;
  std::vector<proto::MemberId> leaving;
  if (slots == 0 || !policy_.oversubscribe) leaving = beyond_slots(members_, node, slots);
  for (const proto::MemberId id : leaving) ask_to_leave(members_.edit(id));
  if (leaving.empty() && wanted == before)
    return;  // or they were asked before, when the size was adjusted
  // A member that leaves with its host is replaced if there is room elsewhere. Slots that were
  // leased with the host make the job smaller, wherever members run.
  size_.shrink_to(wanted, for_now);
  journal_intent();
  if (wanted < before) shrink();
}

// A job without a requested size grows with its hosts; others grow by the slots that are leased to
// them.
void Coordinator::grow(std::uint32_t leased) {
  if (!launch_.joined() || members_.any_finished() || !size_.grow(leased)) return;
  forget_failures();
  journal_intent();
}

void Coordinator::count_slots() {
  if (job_.driver_reports_nodes()) size_.set_slots(nodes_.slots());
}

// The known nodes decide the size of the first launch.
void Coordinator::on_nodes_known(const proto::NodesKnown& known) {
  if (stage_ != Stage::kNodes) return;
  if (known.shards > 0 && world_.generation == 0) policy_.shards = known.shards;
  if (known.shards > 0) policy_.resume = known.resume;
  count_slots();
  if ((world_.generation == 0 || size_.target() == 0) && size_.fit_to_capacity()) {
    launch_.resize(size_.target());
  }
  stage_ = incarnation_ > 1 || world_.generation > 0 ? Stage::kHello : Stage::kStarting;
  if (world_.generation == 0 && size_.capacity() < policy_.min) return end_without_room();
  round_.begin(awake_);
  if (stage_ == Stage::kHello) outbox_.send_to_all(proto::Hello{});
  for (auto& [id, r] : members_.edit_all()) {
    if (!r.reaped() && !nodes_.contains(r.slot_id.node)) lose_with_node(&r);
  }
}

// Only before the first World: later the remaining members hold the state until hosts come.
void Coordinator::end_without_room() {
  end(1,
      fmt::format("the hosts that came up have {} for at least {}",
                  base::counted(size_.capacity(), "slot"), base::counted(policy_.min, "member")));
}

void Coordinator::lose_node(proto::NodeId node, const std::string& why) {
  if (size_.lose_host(node)) journal_intent();
  nodes_.erase(node);
  suspicions_.forget(node);
  round_.lose(node);
  count_slots();
  outbox_.note(why);
  if (world_.generation == 0 && stage_ != Stage::kNodes && size_.capacity() < policy_.min)
    return end_without_room();
  bool launch_lost = false;
  for (const proto::MemberId id : members_.on_node(node)) {
    MemberInfo& r = *members_.edit(id);
    if (r.reaped()) continue;
    launch_lost |= r.state == MemberState::kStarting && !launch_.joined();
    lose_with_node(&r);
  }
  if (!launch_lost || stage_ == Stage::kHello || stage_ == Stage::kRelaunching) return;
  launch_.repeat_at(now_);
  dismiss_launch();
}

// The coordinator does not wait for the processes of a lost node: its agent kills them, and the
// node's id, which is never used again, fences them off.
void Coordinator::lose_with_node(MemberInfo* r) {
  r->status = r->finished ? 0 : 1;
  r->kill_at.reset();
  if (r->cause.empty()) r->cause = "its host was lost";
  if (mark_dead(now_, r)) not_replaced(*r);
}

// Counts only if the reporting node has a member in the World. Recorded once per suspicion.
void Coordinator::on_peer_suspect(proto::NodeId node, const proto::PeerSuspect& suspect) {
  const MemberInfo* r = members_.find(suspect.member);
  if (r == nullptr || !r->lives_in_world() || r->slot_id.node == node ||
      !has_member_on(world_, node))
    return;
  if (suspicions_.suspect(now_, r->id, node))
    outbox_.remember(fmt::format("member {} cannot be reached by another: {}", r->id, suspect.why));
  if (suspicions_.is_silent(r->slot_id.node)) drop_suspected_nodes();
}

void Coordinator::drop_node(proto::NodeId node, const std::string& why) {
  outbox_.send(node, proto::NodeLost{node, why});
  lose_node(node, why);
}

void Coordinator::drop_suspected_nodes() {
  for (const proto::NodeId node : suspicions_.lost(now_, members_)) {
    drop_node(node, fmt::format("host {}: neither its agent nor its members are heard any more",
                                nodes_.find(node)->name));
  }
}

// Drops agents whose heartbeats come but that do not send what the next World waits for. A job on
// one host has no other agent to continue with.
void Coordinator::drop_unresponsive_nodes() {
  if (!job_.driver_reports_nodes()) return;
  for (const proto::NodeId id : round_.overdue(nodes_, awake_)) {
    if (done()) return;
    drop_node(id, fmt::format("host {}: its agent is heard, but has not answered for 20 s",
                              nodes_.find(id)->name));
  }
}

void Coordinator::on_peer_addresses(proto::NodeId node, const proto::PeerAddresses& addresses) {
  if (stage_ != Stage::kSteady && stage_ != Stage::kHello) return;
  for (proto::PeerAddresses& part :
       peer_addresses_.add(node, addresses_of_host(known(), node, addresses), world_))
    outbox_.send_to_all(std::move(part));
}

// Members on all nodes must declare the same.
bool Coordinator::accept_declaration(MemberInfo* r, const proto::Join& join) {
  if (!declared_) declared_ = join;
  std::string warning;
  const base::Status status =
      check_declaration(join, *declared_, policy_.any_fingerprint, &warning);
  if (status.ok()) return true;
  outbox_.note(status.message());
  r->failure = {r->id, refusal_kind(join, *declared_), "", status.message()};
  refuse_member(r, status.message());
  return false;
}

}  // namespace regroup::membership
