// What a failure means before any member has joined.
#include "membership/coordinator/launch_until_join.h"

#include <fmt/format.h>

#include <algorithm>

#include "membership/declaration.h"

namespace regroup::membership {
namespace {

bool was_refused(const MemberInfo& r) {
  return r.failure.kind == proto::kRefusedKind || r.failure.kind == kOtherModelKind;
}

}  // namespace

LaunchUntilJoin::LaunchUntilJoin(RelaunchPolicy policy, std::uint32_t min, std::uint32_t target)
    : policy_(policy), min_(min), relaunches_(policy, min, target) {}

void LaunchUntilJoin::restore(const Intent& intent) {
  relaunches_.restore(intent.restarts);
  first_member_ = intent.first_member;
}

void LaunchUntilJoin::save(Intent* intent) const {
  intent->restarts = relaunches_.restarts();
  intent->first_member = first_member_;
}

void LaunchUntilJoin::resize(std::uint32_t target) {
  const std::uint32_t restarts = relaunches_.restarts();
  relaunches_ = Relaunches(policy_, min_, target);
  relaunches_.restore(restarts);
}

std::uint32_t LaunchUntilJoin::begin(base::TimePoint now, std::uint32_t most,
                                     proto::MemberId first) {
  first_member_ = first;
  return members_ = relaunches_.launch(now, most);
}

LaunchUntilJoin::Found LaunchUntilJoin::find(base::TimePoint now, const MemberTable& members,
                                             bool any_joined) {
  members_ = 0;
  for (const auto& [id, r] : members.all()) members_ += id >= first_member_ ? 1 : 0;
  if (members_ == 0) return Found::kNone;
  if (!any_joined && members_ < members.next_id() - first_member_) {
    due_ = now;
    return Found::kInterrupted;
  }
  relaunches_.adopt(now, members_);
  return Found::kRuns;
}

bool LaunchUntilJoin::join(base::TimePoint now) {
  if (joined_at_) return false;
  joined_at_ = now;
  return true;
}

LaunchUntilJoin::Verdict LaunchUntilJoin::on_end(base::TimePoint now, const MemberInfo& member,
                                                 const std::string& what,
                                                 const MemberTable& members) {
  if (member.status == 0) {
    if (members.staying() > 0) return {};
    return {Then::kEndJob, 0, "all members exited with status 0"};
  }
  // A refused member may be the only one: the others may still be accepted. If all are refused,
  // another launch would be refused for the same reason.
  const bool others = members.count(MemberState::kStarting) > 0;
  if (was_refused(member) && others) return {Then::kShrink};
  const auto of_others_or_refused = [&](const auto& one) {
    return one.first < first_member_ || was_refused(one.second);
  };
  if (was_refused(member) && std::ranges::all_of(members.all(), of_others_or_refused)) {
    return {Then::kEndJob, member.failed_status(),
            fmt::format("every member was refused: {}", member.failure.message)};
  }
  const auto verdict =
      relaunches_.on_failure(now, member.first_rank, member.failed_status(), what, member.failure);
  if (!verdict.again) return {Then::kEndJob, verdict.exit_code, verdict.sentence};
  due_ = verdict.due;
  return {Then::kRelaunch, 0, verdict.sentence};
}

}  // namespace regroup::membership
