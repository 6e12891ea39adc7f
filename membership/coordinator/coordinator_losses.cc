// Performs what the loss of a member means. loss.h and launch.h decide.
#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/loss.h"

namespace regroup::membership {

void Coordinator::on_lost(proto::NodeId node, const proto::MemberLost& lost) {
  ending_refused_.erase(lost.member);  // also of a process that hangs in the kernel
  MemberInfo* r = members_.edit(lost.member);
  if (r == nullptr) {
    r = &recover(lost.member, node, false);
    if (launch_.joined()) r->move_to(MemberState::kGone);
  }
  const Loss loss = meaning_of(*r, lost);
  if (loss == Loss::kNothingNew) return;
  if (loss == Loss::kUnseenJoin) lose_unseen(r);
  const auto unexpected = record_loss(lost, r);
  observe_step(r->step);
  const bool of_launch = loss == Loss::kUnready && !launch_.joined() && stage_ != Stage::kHello;
  if (unexpected && !of_launch) outbox_.note(*unexpected);
  if (of_launch) {
    r->move_to(MemberState::kGone);
    r->since = now_;
    return lost_of_launch(*r, loss_message(lost, r->cause), unexpected.has_value());
  }
  if (loss == Loss::kUnready) return lose_unready(r);
  if (loss == Loss::kDeath) lose_ready(r);
  if (r->reaped() && r->failure_due) charge(r);
}

// Whether an earlier incarnation has counted this loss is unknown, so it is no failure.
void Coordinator::lose_unseen(MemberInfo* member) {
  on_first_ready();
  member->move_to(MemberState::kGone);
  size_.keep_at_most(members_.staying());
  losses_due_ = true;
}

void Coordinator::lose_unready(MemberInfo* member) {
  member->move_to(MemberState::kGone);
  member->since = now_;
  if (stage_ == Stage::kHello) return;
  not_replaced(*member);
  charge(member);
}

// The failure is charged once the process was reaped, which says why.
void Coordinator::lose_ready(MemberInfo* member) {
  if (!mark_dead(now_, member)) return;
  budget_.put_off(now_, member->restart_slot, members_.staying() >= policy_.min);
  not_replaced(*member);
  member->failure_due = true;
}

// The next World shows the members lost during one regroup; a successor finds them in the journaled
// World.
void Coordinator::not_replaced(const MemberInfo& lost) {
  if (!size_.lose_one()) return;
  losses_due_ |= stage_ != Stage::kRegrouping || lost.rank < 0;
}

// Called once the failure of a lost member is known.
void Coordinator::charge(MemberInfo* member) {
  member->failure_due = false;
  if (member->ended_by == EndedBy::kUser || stage_ == Stage::kHello) return;
  const FailureStreak before = budget_.row();
  const FailureVerdict verdict = judge_failure(now_, *member, world_, members_,
                                               {.min = policy_.min,
                                                .desired = size_.desired(),
                                                .replaces = policy_.replace,
                                                .hosts_may_come = job_.driver_reports_nodes()},
                                               &budget_);
  if (budget_.row() != before) outbox_.journal(budget_.row());
  switch (verdict.then) {
    case FailureVerdict::Then::kReplace:
      return;
    case FailureVerdict::Then::kDisableSlot:
      return outbox_.note(verdict.sentence);
    case FailureVerdict::Then::kEndJob:
      return end(verdict.exit_code, verdict.sentence, verdict.left);
  }
}

void Coordinator::forget_failures() {
  const bool known = budget_.row().length > 0;
  budget_.reset();
  if (known) outbox_.journal(budget_.row());
}

// Reports `what` if it is news and the verdict's sentence does not open with it.
void Coordinator::lost_of_launch(const MemberInfo& member, const std::string& what, bool news) {
  // A member that failed was ended with its launch, or by a launcher that ends a job on one host
  // and has taken back its slots: then no launch follows.
  const bool over = !job_.driver_reports_nodes() && size_.capacity() == 0;
  LaunchUntilJoin::Verdict verdict;
  if (member.status == 0 || (stage_ != Stage::kRelaunching && !over))
    verdict = launch_.on_end(now_, member, what, members_);
  if (news && !verdict.sentence.starts_with(what)) outbox_.note(what);
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
