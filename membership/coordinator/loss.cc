// The decisions about a lost member. restart_budget.h and relaunch.h count.
#include "membership/coordinator/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "base/printable.h"
#include "membership/coordinator/agent_facts.h"
#include "membership/declaration.h"

namespace regroup::membership {
namespace {

std::string cause_of(const proto::MemberLost& lost) {
  if (lost.signal != 0) return fmt::format("killed by signal {}", lost.signal);
  const bool early = lost.exit_code == 0 && lost.joined && !lost.finished;
  return fmt::format("exited with status {}{}", lost.exit_code, early ? " before finish()" : "");
}

bool was_killed(const MemberInfo& member) {
  return member.ended_by == EndedBy::kUser || member.ended_by == EndedBy::kHang;
}

// The restart slots of the members that remain in the World.
std::set<std::uint32_t> remaining_slots(const proto::World& world, const MemberTable& members) {
  std::set<std::uint32_t> slots;
  for (const proto::WorldMember& m : world.members) {
    const MemberInfo* r = members.find(m.id);
    if (r != nullptr && r->lives_in_world()) slots.insert(r->restart_slot);
  }
  return slots;
}

Ending ending_of(base::TimePoint now, const MemberInfo& r, const proto::World& world) {
  const bool was_in = r.entered != base::TimePoint{};
  // A training that goes on does not end because of members that do not fit it.
  const bool unfit = world.generation > 0 && !was_in && r.failure.kind == proto::kRefusedKind;
  return {.member = r.id,
          .slot = r.restart_slot,
          .failure = r.failure,
          .cause = r.cause,
          .outside = unfit || (r.reaped() && r.ended_by != EndedBy::kHang && !r.failure.known() &&
                               ended_from_outside(*r.status)),
          .ready = r.warm_order > 0,
          .learning = is_learner(r.catch_up) && !was_in,
          .lived = was_in ? now - r.entered : base::Duration{},
          .steps = was_in ? r.step - std::min(r.step, r.entered_at) : 0,
          .at = std::max(r.step, world.resume.step())};
}

}  // namespace

Loss meaning_of(const MemberInfo& member, const proto::MemberLost& lost) {
  if (member.reaped()) return Loss::kNothingNew;
  if (member.state == MemberState::kStarting) {
    if (lost.joined) return Loss::kUnseenJoin;
    return lost.reaped ? Loss::kUnready : Loss::kDetail;
  }
  const bool living = member.state == MemberState::kWarm || member.lives_in_world();
  return living ? Loss::kDeath : Loss::kDetail;
}

std::optional<std::string> record_loss(const proto::MemberLost& lost, MemberInfo* member) {
  member->finished |= lost.finished;
  member->step = std::max(member->step, lost.step);
  if (lost.loss) member->loss = *lost.loss;
  if (lost.failure.known()) member->failure = lost.failure;
  if (!lost.reaped) return std::nullopt;
  member->status = lost.signal != 0 ? 128 + lost.signal : lost.exit_code;
  if (!was_killed(*member) || lost.signal != SIGKILL) member->cause = cause_of(lost);
  member->kill_at.reset();
  const bool expected = member->ended_by == EndedBy::kCoordinator ||
                        (member->status == 0 && (member->finished || !lost.joined));
  if (expected) return std::nullopt;
  return loss_message(lost, member->cause);
}

bool mark_dead(base::TimePoint now, MemberInfo* member) {
  const bool counted_on = member->counted_on();
  member->move_to(member->in_world() ? MemberState::kLost : MemberState::kGone);
  member->since = now;
  if (!member->reaped() && !member->finished) member->kill_at = now + kExitGrace;
  return counted_on;
}

FailureVerdict judge_failure(base::TimePoint now, const MemberInfo& member,
                             const proto::World& world, const MemberTable& members,
                             const FailureTerms& terms, RestartBudget* budget) {
  using Then = FailureVerdict::Then;
  if (!terms.replaces || members.any_finished()) return {};
  const bool enough = members.staying() >= terms.min;
  // Before World 1 a new member of the same program would be refused as well.
  if (member.failure.kind == kOtherModelKind && world.generation == 0 && !enough)
    return {Then::kEndJob, member.failure.message, member.failed_status()};
  const RestartBudget::Verdict verdict =
      budget->on_ending(now, ending_of(now, member, world), remaining_slots(world, members));
  if (verdict.what == RestartBudget::What::kRestart) return {};
  if (verdict.what == RestartBudget::What::kEndJob) {
    const bool unreadable = member.failure.kind == proto::kUnreadableKind;
    return {Then::kEndJob, verdict.why, member.failed_status(),
            unreadable ? StateLeft::kNone : StateLeft::kWithMembers};
  }
  // On a single host no further slots can come, and before World 1 no progress is lost by ending.
  const bool more = enough || budget->any_left(terms.desired, members.used_slots());
  if (more || (terms.hosts_may_come && world.generation > 0)) {
    return {Then::kDisableSlot,
            verdict.why + ": the slot is disabled, `regroup resize` enables it again"};
  }
  return {Then::kEndJob,
          fmt::format("{}: {} of at least {} left", verdict.why, members.staying(),
                      base::counted(terms.min, "member")),
          member.failed_status()};
}

}  // namespace regroup::membership
