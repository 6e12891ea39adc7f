// From one World to the next, and how a job ends. docs/design/architecture.md sections 3 and 4.
//
// From a member's death to the next committed step, with the reason for the place of each part:
//  1. *Loss.* The agent of the dead member's host sends MemberLost (on_lost). The member becomes
//     kLost but stays in its World: its seals, and a step that it may have committed, still count.
//     A lost host loses its members in the same way (lose_node), and its seals with them.
//  2. *Revoke* (start_regroup). The World commits no further step, so all agents close the open
//     steps of their members. It precedes the journal entry of the loss (finish_call), because the
//     survivors wait in a collective for the dead member, and a disk may be slow. A coordinator
//     that dies between the two is told again: the member is in the journaled World.
//  3. *Reports* (ReportRound). Each agent reports the state word and the seals of every member,
//     after it has closed them: from then on none can commit step s of this generation, so what
//     is reported stays true. All nodes are waited for, those with dead members only included,
//     because a step that one member committed may have been applied, and must be applied by all.
//  4. *Decision* (decide_next). decide() chooses the members, next_world() the position at which
//     they resume, who has the state, and who computes the missing leaves. Seals stay where they
//     are, so that only the leaves of the dead member are computed again.
//  5. *Journal* (form_world): the size of the job if it has changed, then the World, with
//     fdatasync. A World that is announced but not on disk could be followed, after a restart, by
//     another one with the same generation number.
//  6. *Announce.* Members that were closed at a step which is committed apply it; the others open
//     it again, compute what is missing, reduce and vote. The coordinator has no part in that
//     commit: it happens when all members of the World have voted.
//  7. *Replacement* (start_members). It starts last, and 0.3 s after the loss at the earliest
//     (RestartBudget::kSurvivorsFirst): a starting process would take cores from the step that
//     all wait for. Once it is warm, and has caught up, parts 2 to 6 admit it in the same way.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/job_end.h"
#include "membership/coordinator/loss.h"
#include "membership/coordinator/next_world.h"

namespace regroup::membership {
// After every message, and at least once a second. The order matters: limits may end members, which
// then are not in the World that is decided upon; members are started last, for a World that has
// been decided upon.
void Coordinator::advance() {
  if (stage_ == Stage::kNodes) return;
  if (stage_ == Stage::kHello || stage_ == Stage::kRegrouping) drop_unresponsive_nodes();
  if (done()) return;
  if (stage_ == Stage::kHello) {
    if (!round_.complete(nodes_)) return;
    end_hello();
  }
  if (stage_ == Stage::kRelaunching) relaunch();
  enforce_limits();
  if (!done()) regroup_to_copy(transfers_.poll(transfer_context()));
  if (!done()) decide_next();
  if (!done()) end_if_over();
  if (!done()) start_members();
}

void Coordinator::decide_next() {
  const bool reported = stage_ == Stage::kRegrouping && round_.complete(nodes_);
  if (stage_ != Stage::kSteady && stage_ != Stage::kStarting && !reported) return;
  const auto repeats = [&] { return decision_.repeats(now_, members_.version(), size_.target()); };
  if (reported ? repeats() : !may_decide(members_.counts(world_), policy_now())) {
    if (stage_ == Stage::kStarting)
      held_ = still_starting(members_.count(MemberState::kWarm),
                             members_.count(MemberState::kStarting));
    return;
  }
  Roster roster = members_.roster(world_, limits_.below_min_since().value_or(base::TimePoint{}));
  roster.revoked = reported;
  Policy policy = policy_now();
  policy.min = least();
  const Verdict verdict = decide(now_, roster, policy);
  if (stage_ == Stage::kSteady) {
    if (!verdict.next && !verdict.broken) return;
    start_regroup(verdict.why);
    if (!verdict.next) held_ = verdict.why;
  } else if (verdict.next) {
    held_.clear();
    form_world(*verdict.next, verdict.why);
  } else {
    if (reported && !held_said_) tell_held(verdict.why);
    held_ = verdict.why;
    if (reported) make_room();
  }
}

// The history has the sentence already if the regroup began with it, which may say other seconds.
void Coordinator::tell_held(const std::string& why) {
  held_said_ = true;
  if (held_.empty()) outbox_.remember(why);
  if (!policy_.fixed) outbox_.say(why);
}

// Below min with every slot in use, a drained member makes room for its successor, provided that
// another member has the state.
void Coordinator::make_room() {
  if (members_.holders() == 0 || members_.processes() < size_.capacity()) return;
  for (auto& [id, r] : members_.edit_all()) {
    if (r.state == MemberState::kDrained) dismiss(&r, true, "left on notice");
  }
}

// All agents have answered Hello: continue with the journaled World, or regroup.
void Coordinator::end_hello() {
  if (world_.generation == 0) return end_hello_before_world_1();
  round_.clear();
  launch_.adopt_joined(now_, size_.target());
  for (auto& [id, r] : members_.edit_all()) {
    const bool ending = r.state == MemberState::kLost && !r.reaped() && !r.finished;
    if (ending && !r.kill_at) r.kill_at = now_ + kExitGrace;
    // The incarnation that journaled this may have died before it sent the Notice.
    if (r.state == MemberState::kDraining && !r.drained)
      outbox_.send(r.slot_id.node, proto::Notice{id});
    if (r.drained) settle_drained(&r);
  }
  shrink();
  for (const auto& [id, node] : nodes_.all()) {
    if (node.slots == 0) leave_node(id);  // the predecessor may have died before it did
  }
  stage_ = Stage::kSteady;
  if (recovery_.agreed()) {
    outbox_.note(fmt::format("incarnation {} of the coordinator continues with generation {}",
                             incarnation_, highest_));
  } else {
    start_regroup(fmt::format("incarnation {} of the coordinator found generation {} over",
                              incarnation_, highest_));
  }
}

void Coordinator::end_hello_before_world_1() {
  const bool any_joined = round_.any_joined();
  round_.clear();
  stage_ = Stage::kStarting;
  const LaunchUntilJoin::Found found = launch_.find(now_, members_, any_joined);
  if (found == LaunchUntilJoin::Found::kNone) return;
  if (found == LaunchUntilJoin::Found::kInterrupted) {
    outbox_.note(
        "the coordinator was restarted while members were being launched: they are launched again");
    return dismiss_launch();
  }
  for (const auto& [id, r] : members_.all()) {
    const bool counts = r.reaped() && r.ended_by != EndedBy::kCoordinator && !launch_.joined();
    if (counts && stage_ == Stage::kStarting)
      lost_of_launch(r, fmt::format("member {}: {}", id, r.cause), /*news=*/false);
  }
}

void Coordinator::start_regroup(const std::string& why) {
  stage_ = Stage::kRegrouping;
  held_.clear();
  held_said_ = false;
  decision_.forget();
  round_.begin(awake_);
  for (auto& [id, r] : members_.edit_all())
    if (r.catch_up == CatchUp::kCaughtUp) r.catch_up_with(CatchUpEvent::kAdmitted);
  outbox_.send_to_all(proto::Revoke{highest_});
  outbox_.remember(why);
}

// The minimum size of a World. Once no host has slots any more, the remaining members finish their
// step and leave.
std::uint32_t Coordinator::least() const { return nodes_.slots() > 0 ? policy_.min : 1; }

// The policy with the size that the job is to have at present.
Policy Coordinator::policy_now() const {
  Policy policy = policy_;
  policy.target = size_.target();
  policy.target_follows = size_.follows_hosts();
  policy.slots = size_.capacity();
  return policy;
}

StateTransfers::Context Coordinator::transfer_context() {
  return {now_, world_, members_, nodes_, policy_now(), stage_ == Stage::kSteady, outbox_};
}

// A learner in the World cannot replay to its state, so the next World copies it.
void Coordinator::regroup_to_copy(const StateTransfers::RegroupReason& why) {
  if (why && stage_ == Stage::kSteady) start_regroup(*why);
}

void Coordinator::form_world(const std::vector<proto::MemberId>& next, const std::string& why) {
  if (highest_ >= proto::kMaxGeneration) return end(1, "no generation number is left");
  const PlaneVerdict plane = plane_of(next);
  if (!plane.plane) {  // the World continues without newcomers that do not fit
    if (!refuse_newcomers(next, plane.sentence)) end(1, plane.sentence);
    return;
  }
  const auto formed = next_world({.incarnation = incarnation_,
                                  .generation = highest_ + 1,
                                  .shards = policy_.shards,
                                  .checkpoint = policy_.resume,
                                  .members = next,
                                  .why = why,
                                  .plane = plane.plane,
                                  .plane_why = plane.sentence},
                                 world_, members_, round_.reports());
  if (const auto* lost = std::get_if<StateIsLost>(&formed)) {
    return fail(fmt::format("all members that held the state of step {} are lost", lost->step),
                StateLeft::kNone);
  }
  const auto& w = std::get<proto::World>(formed);
  if (!size_.is_journaled()) journal_intent();
  outbox_.journal(w);
  outbox_.send_to_all(proto::Announce{w});
  enter(w);
}

void Coordinator::enter(const proto::World& world) {
  if (world.resume > world_.resume) progress_since_ = now_;
  const bool other_plane = world_.plane && world.plane != world_.plane;
  world_ = world;
  highest_ = world.generation;
  carrier_lost_.clear();
  stage_ = Stage::kSteady;
  limits_.enter_world();
  watch_.begin(awake_);
  observe_step(world_.resume.step());
  round_.clear();
  outbox_.note(world.why);
  if (other_plane) outbox_.remember(fmt::format("plane: {}", world.plane_why));
  for (auto& [id, r] : members_.edit_all()) r.rank = -1;
  for (const proto::WorldMember& m : world_.members) {
    MemberInfo& r = *members_.edit(m.id);
    r.entry = m;
    r.rank = static_cast<int>(&m - world_.members.data());
    if (r.state != MemberState::kWarm) continue;
    r.move_to(MemberState::kActive);
    r.entered = now_;
    r.entered_at = world_.resume.step();
  }
  for (auto& [id, r] : members_.edit_all()) {
    if (r.rank >= 0) continue;
    if (r.state == MemberState::kDrained) {
      dismiss(&r, true, "left on notice");
    } else if (r.in_world()) {
      r.move_to(MemberState::kGone);
    }
  }
}

// Ends the job once no member can continue and the exit statuses are known.
void Coordinator::end_if_over() {
  if (stage_ == Stage::kRelaunching || stage_ == Stage::kHello || !launch_.joined()) return;
  if (world_.generation == 0) {
    const bool more =
        size_.desired() > 0 && budget_.any_left(size_.desired(), members_.used_slots());
    if (members_.staying() == 0 && !more) fail("no member came up");
    return;
  }
  const auto over = how_it_ended(now_, world_, members_, progress_since_);
  if (!over) return;
  switch (over->kind) {
    case JobEnd::Kind::kFinished:
      return end(over->exit_code, over->sentence);
    case JobEnd::Kind::kLost:
      return fail(over->sentence, StateLeft::kNone);
    case JobEnd::Kind::kLeftOnNotice:
      return end_on_notice(over->sentence);
  }
}

// JobDone goes first, so that agents ask the members, which stand at a step boundary, for their
// state.
void Coordinator::end_on_notice(const std::string& sentence) {
  tell_end(kEndedOnNotice, sentence, StateLeft::kWithMembers);
  for (auto& [id, r] : members_.edit_all()) {
    if (r.state == MemberState::kDrained) dismiss(&r, true, "left on notice");
  }
  outbox_.finish(kEndedOnNotice, sentence);
}

void Coordinator::fail(const std::string& what, StateLeft left) {
  const JobFailure failure = job_failure(what, members_, progress_since_);
  end(failure.exit_code, failure.sentence, left);
}

void Coordinator::end(std::int32_t exit_code, const std::string& reason, StateLeft left) {
  tell_end(exit_code, reason, left);
  outbox_.finish(exit_code, reason);
}

void Coordinator::tell_end(std::int32_t exit_code, const std::string& reason, StateLeft left) {
  stage_ = Stage::kDone;
  outbox_.remember(reason);
  const proto::JobDone done = job_done(exit_code, reason, left);
  // The revoke frees members that wait for a lost one in a collective, so that their state can be
  // saved.
  if (done.save_state && highest_ > 0) outbox_.send_to_all(proto::Revoke{highest_});
  if (job_.driver_reports_nodes()) {  // the driver ends the nodes' agents
    outbox_.send(0, done);
  } else {
    outbox_.send_to_all(done);
  }
}

}  // namespace regroup::membership
