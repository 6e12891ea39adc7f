// Messages of agents and control commands to the coordinator. docs/design/architecture.md sections
// 2 and 4.
#include "membership/coordinator/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "membership/coordinator/loss.h"

namespace regroup::membership {

Coordinator::Coordinator(Policy policy, JobInfo job, proto::Incarnation incarnation,
                         JournaledState past)
    : policy_(policy),
      job_(std::move(job)),
      incarnation_(incarnation),
      size_(policy),
      launch_(policy.relaunch, policy.min, policy.target),
      budget_(policy.relaunch),
      nodes_(policy.by_node),
      transfers_(incarnation),
      limits_(policy),
      outbox_(std::move(past.sentences)) {
  stage_ = job_.driver_reports_nodes()      ? Stage::kNodes
           : incarnation_ > 1 || past.world ? Stage::kHello
                                            : Stage::kStarting;
  for (const proto::NodeId node : job_.nodes) nodes_.add(node, {"", policy.slots});
  restore(past);
}

void Coordinator::restore(const JournaledState& past) {
  if (past.world) {
    world_ = *past.world;
    highest_ = world_.generation;
    policy_.shards = world_.shards;
    members_.restore(world_);
  }
  if (past.intent) {
    began_ = past.intent->began;
    size_.restore(*past.intent);
    launch_.restore(*past.intent);
    members_.restore(*past.intent);
  }
  budget_.restore(past.failures);
  refused_devices_ = past.refused;
}

Intent Coordinator::intent() const {
  Intent out{.began = began_};
  size_.save(&out);
  launch_.save(&out);
  members_.save(&out);
  return out;
}

void Coordinator::journal(Intent intent) {
  losses_due_ = false;
  size_.journaled();
  outbox_.journal(std::move(intent));
}

// Called at least once a second: a longer gap means that this process was stopped, and does not
// count.
void Coordinator::pass_to(base::TimePoint now) {
  awake_ += std::min<base::Duration>(now - now_, std::chrono::seconds(1));
  now_ = now;
  outbox_.begin(now);
}

Effects Coordinator::tick(base::TimePoint now) {
  if (done()) return {};
  pass_to(now);
  if (!begun_) {
    begun_ = true;
    progress_since_ = now;
    if (began_ == base::TimePoint{}) {
      began_ = now;
      journal_intent();
    }
    if (stage_ == Stage::kHello) outbox_.send_to_all(proto::Hello{});
  }
  advance();
  return finish_call();
}

Effects Coordinator::handle(base::TimePoint now, Sender source, const proto::Message& message) {
  pass_to(now);
  if (source.kind == Sender::Kind::kClient) {
    outbox_.reply(source.id, answer(message.body));
  } else if (!done() && !on_nodes(message.body) &&
             nodes_.contains(static_cast<proto::NodeId>(source.id))) {
    on_agent(static_cast<proto::NodeId>(source.id), message);
  }
  if (!done() && begun_) advance();
  return finish_call();
}

// Losses are journaled after the Revoke, which so does not wait for the disk. A successor that does
// not find them in the journal finds the lost members in the journaled World, and their agents
// report them again.
Effects Coordinator::finish_call() {
  if (!done() && losses_due_) journal_intent();
  members_.end_edits();
  return outbox_.take();
}

void Coordinator::on_agent(proto::NodeId node, const proto::Message& message) {
  const auto own = [&](proto::MemberId member) { return may_report(known(), node, member); };
  if (const auto* ready = std::get_if<proto::MemberReady>(&message.body)) {
    if (own(ready->join.member)) on_ready(node, *ready);
  } else if (const auto* drained = std::get_if<proto::MemberDrained>(&message.body)) {
    if (own(drained->member)) on_drained(node, *drained);
  } else if (const auto* lost = std::get_if<proto::MemberLost>(&message.body)) {
    if (own(lost->member)) on_lost(node, *lost);
  } else if (const auto* failure = std::get_if<proto::Failure>(&message.body)) {
    if (own(failure->member) && failure->final) end(1, what_of(*failure, ""));
  } else if (message.incarnation < incarnation_) {
    return;  // a reply to an earlier incarnation; only the facts handled above stay true
  } else if (const std::string inconsistency = inconsistency_in(known(), message.body);
             !inconsistency.empty()) {
    drop_node(node, fmt::format("host {}: its agent {}", nodes_.find(node)->name, inconsistency));
  } else if (const auto* report = std::get_if<proto::Report>(&message.body)) {
    on_report(node, *report);
  } else if (const auto* hello = std::get_if<proto::HelloReply>(&message.body)) {
    on_hello_reply(node, *hello);
  } else if (const auto* addresses = std::get_if<proto::PeerAddresses>(&message.body)) {
    on_peer_addresses(node, *addresses);
  } else if (const auto* suspect = std::get_if<proto::PeerSuspect>(&message.body)) {
    on_peer_suspect(node, *suspect);
  } else if (const auto* carrier = std::get_if<proto::CarrierLost>(&message.body)) {
    on_carrier_lost(node, *carrier);
  } else if (const auto* diverged = std::get_if<proto::Diverged>(&message.body)) {
    // Which of the states is right is unknown, so the job does not resume from memory.
    if (own(diverged->member) && world_.rank_of(diverged->member) >= 0)
      end(1, diverged->why, StateLeft::kDiverged);
  } else if (const auto* source_status = std::get_if<proto::SourceStatus>(&message.body)) {
    regroup_to_copy(transfers_.on_source_status(transfer_context(), node, *source_status));
  } else if (const auto* target_status = std::get_if<proto::TargetStatus>(&message.body)) {
    if (own(target_status->member))
      regroup_to_copy(transfers_.on_target_status(transfer_context(), *target_status));
  }
}

// Adds a member that an earlier incarnation started and that an agent reports. Dead ones that
// belong neither to the World nor to the present launch have been dealt with.
MemberInfo& Coordinator::recover(proto::MemberId id, proto::NodeId node, bool alive) {
  MemberInfo& r = members_.add(id, node, now_);
  limits_.started(now_);
  const bool launched = world_.generation == 0 && id >= launch_.first_member();
  if (launched) r.first_rank = id - launch_.first_member();
  r.restart_slot = launched ? r.first_rank : members_.free_slot();
  if (launched || (alive && world_.generation > 0)) return r;
  r.move_to(MemberState::kGone);
  r.set_ended_by(EndedBy::kCoordinator);
  r.kill_at = now_ + kExitGrace;  // unless it is reaped before
  return r;
}

void Coordinator::on_ready(proto::NodeId node, const proto::MemberReady& ready) {
  MemberInfo* r = members_.edit(ready.join.member);
  if (r == nullptr) r = &recover(ready.join.member, node, true);
  if (r->state != MemberState::kStarting || !accept_declaration(r, ready.join)) return;
  if (!accept_device(r, node, ready.health)) return;
  if (!accept_planes(r, node, ready.planes)) return;
  // The slot's previous member was reaped, since an agent reassigns no slot before.
  for (const proto::MemberId id : members_.on_node(node)) {
    const MemberInfo& other = *members_.find(id);
    const bool living = other.state == MemberState::kWarm || other.lives_in_world();
    if (!living || other.slot_id.slot != ready.slot) continue;
    members_.edit(id)->cause = "its slot was reassigned";
    lose_with_node(members_.edit(id));
  }
  r->move_to(MemberState::kWarm);
  r->slot_id = {node, ready.slot};
  r->warm_order = ++ready_count_;
  if (world_.generation > 0 && policy_.kept_results > 0 &&
      ready.join.state_bytes >= policy_.learn_above)
    r->catch_up_with(CatchUpEvent::kOrdered);
  on_first_ready();
  if (members_.any_finished()) dismiss(r, true, "the job is finishing");
}

// From the first Ready on, members are replaced one by one, and a launch of fewer than the target
// is filled up.
void Coordinator::on_first_ready() {
  if (!launch_.join(now_)) return;
  grow();  // with the nodes that have come meanwhile
  if (world_.generation == 0 && size_.refill()) journal_intent();
}

void Coordinator::on_drained(proto::NodeId node, const proto::MemberDrained& drained) {
  MemberInfo* r = members_.edit(drained.member);
  if (r == nullptr) r = &recover(drained.member, node, true);
  r->drained = true;  // it opens no step any more, but serves its state while that is needed
  if (stage_ != Stage::kHello) settle_drained(r);
}

void Coordinator::settle_drained(MemberInfo* r) {
  if (r->state == MemberState::kStarting)
    return dismiss(r, true, "left on notice");  // the World went on without it
  if (r->state == MemberState::kActive || r->state == MemberState::kWarm) ask_to_leave(r);
  if (r->state == MemberState::kDraining) r->move_to(MemberState::kDrained);
}

void Coordinator::on_report(proto::NodeId node, const proto::Report& report) {
  take_reports(node, report.slots);
  if (report.generation == 0) {
    for (const proto::SlotReport& slot : report.slots) {
      const MemberInfo* r = members_.find(slot.member);
      if (r != nullptr && r->slot_id.node == node && r->rank >= 0) watch_.update(awake_, slot);
    }
    return;
  }
  if (stage_ == Stage::kRegrouping && report.generation >= highest_)
    round_.add(node, reports_of_host(known(), node, report.slots));
  if (stage_ == Stage::kSteady && report.generation >= world_.generation &&
      has_member_on(world_, node)) {
    start_regroup(fmt::format("node {} closed generation {}", node, report.generation));
  }
}

void Coordinator::on_hello_reply(proto::NodeId node, const proto::HelloReply& reply) {
  if (stage_ != Stage::kHello) return;
  recovery_.add(reply, world_);
  highest_ = std::max(highest_, recovery_.highest());
  if (!declared_) declared_ = reply.declared;
  for (const proto::SlotReport& slot : reply.slots) {
    if (members_.find(slot.member) == nullptr && may_report(known(), node, slot.member))
      (void)recover(slot.member, node, slot.alive);
  }
  recover_planes(node, reply.planes);
  for (const proto::MemberId id : unreported_members(members_, node, reply.slots)) {
    MemberInfo* r = members_.edit(id);
    const bool stayed = r->state == MemberState::kActive && !r->leave_wanted;
    r->move_to(MemberState::kLost);
    r->status = r->status.value_or(0);  // it was reaped; how it ended is unknown
    if (stayed) not_replaced(*r);
  }
  take_reports(node, reply.slots);
  round_.add(node, reports_of_host(known(), node, reply.slots));
}

void Coordinator::take_reports(proto::NodeId node, const std::vector<proto::SlotReport>& slots) {
  for (const proto::SlotReport& slot : slots) {
    MemberInfo* r = members_.edit(slot.member);
    if (r == nullptr || r->slot_id.node != node) continue;
    r->take_report(slot);
    observe_step(r->step);
    if (!slot.alive && r->lives_in_world())
      on_lost(node, {.member = r->id, .joined = true, .finished = r->finished});
  }
}

void Coordinator::observe_step(proto::Step applied) {
  if (world_.generation > 0) meter_.observe(now_, std::max(applied, world_.resume.step()));
}

proto::Body Coordinator::answer(const proto::Body& request) {
  if (std::holds_alternative<proto::StatusRequest>(request)) {
    limits_.query_at(now_);  // the next status request then shows fresh progress
    return proto::StatusReply{status_json(now_)};
  }
  if (done()) return proto::Reply{false, "the job is over"};
  if (const auto* r = std::get_if<proto::ResizeRequest>(&request)) return resize(r->members);
  if (const auto* r = std::get_if<proto::NoticeRequest>(&request)) return notice(r->member);
  if (const auto* r = std::get_if<proto::KillRequest>(&request)) return kill(r->member);
  return proto::Reply{false, "not a request to a coordinator"};
}

RequestTerms Coordinator::request_terms() const {
  std::uint32_t lost = 0;
  for (const auto& [id, node] : nodes_.all()) lost += node.lost;
  return {policy_, size_, members_, launch_.joined(), world_.generation > 0, lost};
}

proto::Reply Coordinator::resize(std::uint32_t members) {
  if (auto reply = check_resize(request_terms(), members)) return *std::move(reply);
  size_.request(members);
  forget_failures();
  forget_refused_devices();
  const std::size_t first = outbox_.end();
  if (stage_ != Stage::kHello) shrink();
  outbox_.journal_at(first, intent());  // on disk before any effect of it
  size_.journaled();
  return resized(members, world_.size());
}

proto::Reply Coordinator::notice(proto::MemberId id) {
  if (auto reply = check_notice(request_terms(), id)) return *std::move(reply);
  MemberInfo* r = members_.edit(id);
  ask_to_leave(r);
  return noticed(*r);
}

proto::Reply Coordinator::kill(proto::MemberId id) {
  if (auto reply = check_kill(request_terms(), id)) return *std::move(reply);
  kill_member(members_.edit(id), EndedBy::kUser, "killed by regroup kill-member");
  return killed(id);
}

void Coordinator::kill_member(MemberInfo* member, EndedBy by, const std::string& cause) {
  member->set_ended_by(by);
  member->cause = cause;
  outbox_.send(member->slot_id.node, proto::Kill{member->id, false, "kill-member"});
}

}  // namespace regroup::membership
