// The end of a job whose members have finished, are lost or have left.
#include "membership/coordinator/job_end.h"

#include <fmt/format.h>

#include "membership/coordinator/restart_budget.h"

namespace regroup::membership {

std::optional<JobEnd> how_it_ended(base::TimePoint now, const proto::World& world,
                                   const MemberTable& members, base::TimePoint progress_since) {
  if (members.count(MemberState::kActive, MemberState::kDraining) > 0) return std::nullopt;
  std::int32_t status = 0;
  bool lost = false;
  bool well = members.first_failure(progress_since) == nullptr;
  for (const proto::WorldMember& m : world.members) {
    const MemberInfo& r = members.all().at(m.id);
    const bool late = !r.finished && now >= r.since + kStatusWait;
    if (r.state == MemberState::kLost && !r.reaped() && !late) return std::nullopt;
    lost |= r.state == MemberState::kLost;
    well = well && r.state == MemberState::kLost && r.status == 0;
    if (r.finished && status == 0) status = r.status.value_or(0);
  }
  if (members.any_finished()) {
    return JobEnd{JobEnd::Kind::kFinished, status,
                  status == 0
                      ? "finished"
                      : fmt::format("a member ended with status {} after finish()", status)};
  }
  if (!lost) return JobEnd{JobEnd::Kind::kLeftOnNotice, 0, "all members left on notice"};
  const std::string what =
      well ? "the program ended without session.finish(), with status 0, in all members of"
           : "all members of";
  return JobEnd{JobEnd::Kind::kLost, 0,
                fmt::format("{} generation {}{}", what, world.generation, well ? "" : " are lost")};
}

JobFailure job_failure(const std::string& what, const MemberTable& members,
                       base::TimePoint progress_since) {
  const MemberInfo* first = members.first_failure(progress_since);
  if (first == nullptr) return {1, what};
  return {first->failed_status(), fmt::format("{}, first member {} ({})", what, first->id,
                                              what_of(first->failure, first->cause))};
}

proto::JobDone job_done(std::int32_t exit_code, const std::string& reason, StateLeft left) {
  return {exit_code, reason, left == StateLeft::kNone,
          exit_code > 0 && left == StateLeft::kWithMembers};
}

}  // namespace regroup::membership
