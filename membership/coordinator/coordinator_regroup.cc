// From one World to the next: revoke, report, decide, journal, announce; and how a job ends.
// docs/design/architecture.md section 4.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/next_world.h"

namespace regroup::membership {
namespace {

// The minimum size of a World.
std::uint32_t least(const NodeTable& nodes, const Policy& policy) {
  return nodes.slots() > 0 ? policy.min : 1;
}

}  // namespace

void Coordinator::advance() {
  if (stage_ == Stage::kNodes) return;
  if (stage_ == Stage::kHello || stage_ == Stage::kRegrouping) drop_unresponsive_nodes();
  if (done()) return;
  if (stage_ == Stage::kHello) {
    if (!round_.complete(nodes_)) return;
    end_hello();
  }
  if (stage_ == Stage::kRelaunching) relaunch();
  watch_minimum();
  enforce_limits();
  if (!done()) regroup_to_copy(transfers_.poll(transfer_context()));
  if (!done()) decide_next();
  if (!done()) end_if_over();
  if (!done()) start_members();
}

void Coordinator::decide_next() {
  const bool reported = stage_ == Stage::kRegrouping && round_.complete(nodes_);
  if (stage_ != Stage::kSteady && stage_ != Stage::kStarting && !reported) return;
  if (reported ? decided_recently() : !may_decide(members_.counts(world_), policy_now())) {
    if (stage_ == Stage::kStarting)
      held_ = still_starting(members_.count(MemberState::kWarm),
                             members_.count(MemberState::kStarting));
    return;
  }
  Roster roster = members_.roster(world_, below_min_since_.value_or(base::TimePoint{}));
  roster.revoked = reported;
  Policy policy = policy_now();
  // Once no host has slots any more, the remaining members finish their step and leave.
  policy.min = least(nodes_, policy_);
  const Verdict verdict = decide(now_, roster, policy);
  if (stage_ == Stage::kSteady) {
    if (verdict.next || verdict.broken) start_regroup(verdict.why);
  } else if (verdict.next) {
    held_.clear();
    form_world(*verdict.next, verdict.why);
  } else {
    if (reported && held_.empty())
      policy_.fixed ? outbox_.remember(verdict.why) : outbox_.note(verdict.why);
    held_ = verdict.why;
    if (reported) make_room();
  }
}

// True if no member has changed since the last decision. Once a second it is made again, for its
// sentence.
bool Coordinator::decided_recently() {
  if (decided_) {
    const auto [version, target, at] = *decided_;
    if (version == members_.version() && target == size_.target() &&
        now_ < at + std::chrono::seconds(1))
      return true;
  }
  decided_ = {members_.version(), size_.target(), now_};
  return false;
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
    const bool ending = r.state == MemberState::kLost && !r.reaped && !r.finished;
    if (ending && !r.kill_at) r.kill_at = now_ + std::chrono::seconds(1);
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
  if (agreed_) {
    outbox_.note(fmt::format("incarnation {} of the coordinator continues with generation {}",
                             incarnation_, highest_));
  } else {
    start_regroup(fmt::format("incarnation {} of the coordinator found generation {} over",
                              incarnation_, highest_));
  }
}

void Coordinator::end_hello_before_world_1() {
  const auto joined = [](const proto::SlotReport& line) { return line.slot != proto::kNoSlot; };
  const bool any_joined =
      std::any_of(round_.reports().begin(), round_.reports().end(), [&](const auto& reply) {
        return std::any_of(reply.second.begin(), reply.second.end(), joined);
      });
  round_.clear();
  stage_ = Stage::kStarting;
  std::uint32_t launched = 0;
  for (const auto& [id, r] : members_.all()) launched += id >= launch_.first_member();
  launch_.find(launched);
  if (launched == 0) return;
  if (!any_joined && launched < members_.next_id() - launch_.first_member()) {
    outbox_.note("the coordinator ended in the middle of a launch: it is made again");
    launch_.repeat_at(now_);
    return dismiss_launch();
  }
  launch_.adopt(now_);
  for (const auto& [id, r] : members_.all()) {
    const bool counts = r.reaped && !r.dismissed && !launch_.joined();
    if (counts && stage_ == Stage::kStarting)
      lost_of_launch(r, fmt::format("member {}: {}", id, r.cause));
  }
}

void Coordinator::watch_minimum() {
  const bool plain = !launch_.joined() || members_.any_finished();
  const auto able = world_.generation > 0
                        ? members_.count(MemberState::kWarm, MemberState::kDraining)
                        : members_.count(MemberState::kStarting, MemberState::kWarm);
  if (plain || able >= least(nodes_, policy_)) {
    below_min_since_.reset();
  } else if (!below_min_since_) {
    below_min_since_ = now_;
  }
}

void Coordinator::start_regroup(const std::string& why) {
  stage_ = Stage::kRegrouping;
  held_.clear();
  decided_.reset();
  round_.begin(awake_);
  for (auto& [id, r] : members_.edit_all())
    r.learning &= !r.caught_up;  // caught-up learners join now
  outbox_.send_to_all(proto::Revoke{highest_});
  outbox_.remember(why);
}

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
  const auto formed = next_world({.incarnation = incarnation_,
                                  .generation = highest_ + 1,
                                  .shards = policy_.shards,
                                  .checkpoint = policy_.resume,
                                  .members = next,
                                  .why = why},
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
  world_ = world;
  highest_ = world.generation;
  stage_ = Stage::kSteady;
  straggling_since_.reset();
  watch_.begin(awake_);
  round_.clear();
  outbox_.note(world.why);
  for (auto& [id, r] : members_.edit_all()) r.rank = -1;
  for (const proto::WorldMember& m : world_.members) {
    MemberInfo& r = *members_.edit(m.id);
    r.entry = m;
    r.rank = static_cast<int>(&m - world_.members.data());
    if (r.state != MemberState::kWarm) continue;
    r.state = MemberState::kActive;
    r.entered = now_;
    r.entered_at = world_.resume.step();
  }
  for (auto& [id, r] : members_.edit_all()) {
    if (r.rank >= 0) continue;
    if (r.state == MemberState::kDrained) {
      dismiss(&r, true, "left on notice");
    } else if (r.in_world()) {
      r.state = MemberState::kGone;
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
  if (members_.count(MemberState::kActive, MemberState::kDraining) > 0) return;
  std::int32_t status = 0;
  bool lost = false, well = members_.first_failure(progress_since_) == nullptr;
  for (const proto::WorldMember& m : world_.members) {
    const MemberInfo& r = members_.all().at(m.id);
    const bool late = !r.finished && now_ >= r.since + std::chrono::seconds(5);
    if (r.state == MemberState::kLost && !r.reaped && !late) return;
    lost |= r.state == MemberState::kLost;
    well = well && r.state == MemberState::kLost && r.reaped && r.status == 0;
    if (r.finished && status == 0) status = r.status;
  }
  if (members_.any_finished()) {
    end(status, status == 0 ? "finished"
                            : fmt::format("a member ended with status {} after finish()", status));
  } else if (lost) {
    const std::string what =
        well ? "the program ended without session.finish(), with status 0, in all members of"
             : "all members of";
    fail(fmt::format("{} generation {}{}", what, world_.generation, well ? "" : " are lost"),
         StateLeft::kNone);
  } else {
    // JobDone goes first, so that agents ask the members, which stand at a step boundary, for their
    // state.
    tell_end(kEndedOnNotice, "all members left on notice", StateLeft::kWithMembers);
    for (auto& [id, r] : members_.edit_all()) {
      if (r.state == MemberState::kDrained) dismiss(&r, true, "left on notice");
    }
    outbox_.finish(kEndedOnNotice, "all members left on notice");
  }
}

// Ends the job with the status of the member that failed first.
void Coordinator::fail(const std::string& what, StateLeft left) {
  const MemberInfo* first = members_.first_failure(progress_since_);
  if (first == nullptr) return end(1, what, left);
  end(first->status,
      fmt::format("{}, first member {} ({})", what, first->id,
                  what_of(first->failure, first->cause)),
      left);
}

void Coordinator::end(std::int32_t exit_code, const std::string& reason, StateLeft left) {
  tell_end(exit_code, reason, left);
  outbox_.finish(exit_code, reason);
}

void Coordinator::tell_end(std::int32_t exit_code, const std::string& reason, StateLeft left) {
  stage_ = Stage::kDone;
  outbox_.remember(reason);
  const proto::JobDone done{exit_code, reason, left == StateLeft::kNone,
                            exit_code > 0 && left == StateLeft::kWithMembers};
  // The revoke frees members that wait for a lost one in a collective, so that their state can be
  // saved.
  if (done.save_state && highest_ > 0) outbox_.send_to_all(proto::Revoke{highest_});
  if (job_.nodes.empty()) {  // the driver ends the nodes' agents
    outbox_.send(0, done);
  } else {
    outbox_.send_to_all(done);
  }
}

}  // namespace regroup::membership
