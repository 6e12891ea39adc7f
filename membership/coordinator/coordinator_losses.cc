// What the loss of a member means for its slot, its launch and the job. restart_budget.h and
// relaunch.h decide.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/printable.h"
#include "membership/coordinator/coordinator.h"
#include "membership/declaration.h"

namespace regroup::membership {
namespace {

std::string cause_of(const proto::MemberLost& lost) {
  if (!lost.reaped) return "";
  if (lost.signal != 0) return fmt::format("killed by signal {}", lost.signal);
  const bool early = lost.exit_code == 0 && lost.joined && !lost.finished;
  return fmt::format("exited with status {}{}", lost.exit_code, early ? " before finish()" : "");
}

}  // namespace

void Coordinator::on_lost(proto::NodeId node, const proto::MemberLost& lost) {
  MemberInfo* r = members_.edit(lost.member);
  if (r == nullptr) {
    r = &recover(lost.member, node, false);
    if (launch_.joined()) r->move_to(MemberState::kGone);
  }
  if (r->reaped()) return;
  // It had joined before World 1. Whether an earlier incarnation has counted this loss is unknown.
  if (r->state == MemberState::kStarting && lost.joined) {
    on_first_ready();
    r->move_to(MemberState::kGone);
    size_.keep_at_most(members_.staying());
    losses_due_ = true;
  }
  r->finished |= lost.finished;
  r->step = std::max(r->step, lost.step);
  if (lost.failure.known()) r->failure = lost.failure;
  if (lost.reaped) {
    r->status = lost.signal != 0 ? 128 + lost.signal : lost.exit_code;
    const bool killed = r->ended_by == EndedBy::kUser || r->ended_by == EndedBy::kHang;
    if (!killed || lost.signal != SIGKILL) r->cause = cause_of(lost);
    r->kill_at.reset();
    const bool quiet =
        r->ended_by == EndedBy::kCoordinator || (r->status == 0 && (r->finished || !lost.joined));
    if (!quiet) outbox_.note(loss_message(lost, r->cause));
  }
  if (r->state == MemberState::kStarting) {
    if (lost.reaped) lost_before_ready(r, lost);
  } else if (r->state == MemberState::kWarm || r->lives_in_world()) {
    const bool counted_on = r->counted_on();
    r->move_to(r->in_world() ? MemberState::kLost : MemberState::kGone);
    r->since = now_;
    // Its training thread is dead, so the rest of the process must end; after finish() it may still
    // clean up.
    if (!r->reaped() && !r->finished) r->kill_at = now_ + std::chrono::seconds(1);
    if (counted_on) {
      budget_.put_off(now_, r->restart_slot, members_.staying() >= policy_.min);
      not_replaced(*r);
      r->failure_due = true;
    }
  }
  if (r->reaped() && r->failure_due) charge(r);
}

// The next World shows the members lost during one regroup; a successor finds them in the journaled
// World.
void Coordinator::not_replaced(const MemberInfo& lost) {
  if (!size_.lose_one()) return;
  losses_due_ |= stage_ != Stage::kRegrouping || lost.rank < 0;
}

// Called once the failure of a lost member is known.
void Coordinator::charge(MemberInfo* r) {
  r->failure_due = false;
  if (r->ended_by == EndedBy::kUser) return;  // so it is no failure
  if (!policy_.replace || members_.any_finished() || stage_ == Stage::kHello) return;
  // Before World 1 a new member of the same program would be refused as well.
  if (r->failure.kind == kOtherModelKind && world_.generation == 0 &&
      members_.staying() < policy_.min)
    return end(r->failed_status(), r->failure.message);
  std::set<std::uint32_t> others;
  for (const proto::WorldMember& m : world_.members) {
    const MemberInfo* other = members_.find(m.id);
    if (other != nullptr && other->lives_in_world()) others.insert(other->restart_slot);
  }
  const FailureStreak before = budget_.row();
  const bool was_in = r->entered != base::TimePoint{};
  const auto verdict =
      budget_.on_ending(now_,
                        {.member = r->id,
                         .slot = r->restart_slot,
                         .failure = r->failure,
                         .cause = r->cause,
                         .outside = r->reaped() && r->ended_by != EndedBy::kHang &&
                                    !r->failure.known() && ended_from_outside(*r->status),
                         .ready = r->warm_order > 0,
                         .learning = is_learner(r->catch_up) && !was_in,
                         .lived = was_in ? now_ - r->entered : base::Duration{},
                         .steps = was_in ? r->step - std::min(r->step, r->entered_at) : 0,
                         .at = std::max(r->step, world_.resume.step())},
                        others);
  if (budget_.row() != before) outbox_.journal(budget_.row());
  if (verdict.what == RestartBudget::What::kRestart) return;
  const std::int32_t status = r->failed_status();
  if (verdict.what == RestartBudget::What::kEndJob)
    return end(
        status, verdict.why,
        r->failure.kind == proto::kUnreadableKind ? StateLeft::kNone : StateLeft::kWithMembers);
  // On a single host no further slots can come, and before World 1 no progress is lost by ending.
  const bool more =
      budget_.any_left(size_.desired(), members_.used_slots()) || members_.staying() >= policy_.min;
  if (more || (job_.driver_reports_nodes() && world_.generation > 0))
    return outbox_.note(verdict.why + ": the slot is disabled, `regroup resize` enables it again");
  end(status, fmt::format("{}: {} of at least {} left", verdict.why, members_.staying(),
                          base::counted(policy_.min, "member")));
}

void Coordinator::forget_failures() {
  const bool known = budget_.row().length > 0;
  budget_.reset();
  if (known) outbox_.journal(budget_.row());
}

void Coordinator::lost_before_ready(MemberInfo* member, const proto::MemberLost& lost) {
  member->move_to(MemberState::kGone);
  member->since = now_;
  if (stage_ == Stage::kHello) return;
  if (!launch_.joined()) return lost_of_launch(*member, loss_message(lost, member->cause));
  not_replaced(*member);
  charge(member);
}

void Coordinator::lost_of_launch(const MemberInfo& member, const std::string& what) {
  // A member that failed was ended with its launch, or by a launcher that ends a job on one host
  // and has taken back its slots: then no launch follows.
  const bool over = !job_.driver_reports_nodes() && size_.capacity() == 0;
  if (member.status != 0 && (stage_ == Stage::kRelaunching || over)) return;
  const LaunchUntilJoin::Verdict verdict = launch_.on_end(now_, member, what, members_);
  switch (verdict.then) {
    case LaunchUntilJoin::Then::kNothing:
      return;
    case LaunchUntilJoin::Then::kShrink:
      return not_replaced(member);
    case LaunchUntilJoin::Then::kEndJob:
      return end(verdict.exit_code, verdict.sentence);
    case LaunchUntilJoin::Then::kRelaunch:
      outbox_.note(verdict.sentence);
      return dismiss_launch();
  }
}

}  // namespace regroup::membership
