// What the loss of a member means: for its record, for its slot, and for the job. Pure; not
// thread-safe, never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "membership/coordinator/coordinator_effects.h"
#include "membership/coordinator/member_table.h"
#include "membership/coordinator/restart_budget.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// What a MemberLost means, by what was known of the member before it.
enum class Loss : std::uint8_t {
  kNothingNew,  // its process was known to have ended
  kUnseenJoin,  // it had joined before World 1, is dead, and the coordinator has seen no Ready
  kUnready,     // the process of a starting member has ended
  kDeath,       // a warm member, or one of the World, is dead
  kDetail       // facts about a member that starts, or is lost, dismissed or gone already
};
[[nodiscard]] Loss meaning_of(const MemberInfo& member, const proto::MemberLost& lost);

// Writes what `lost` says of the member's last step, its failure and its process into `member`, but
// not its state. Returns the sentence for the user: nothing while the process runs, or if its end
// was to be expected (it was dismissed, had finished, or has exited with status 0 and never
// joined).
[[nodiscard]] std::optional<std::string> record_loss(const proto::MemberLost& lost,
                                                     MemberInfo* member);

// Time from the loss of a member, whose session or training thread has ended, to SIGKILL: for an
// interpreter that ends.
inline constexpr base::Duration kExitGrace = std::chrono::seconds(5);

// Moves the member to kLost if it is in the World, else to kGone, at `now`. If its process still
// runs, it is to be killed after kExitGrace; a member that has finished may clean up instead.
// Returns whether the job had counted on the member.
[[nodiscard]] bool mark_dead(base::TimePoint now, MemberInfo* member);

// What a failure means for the job.
struct FailureVerdict {
  enum class Then : std::uint8_t {
    kReplace,      // a new member may be started in the slot
    kDisableSlot,  // no member is started in the slot any more
    kEndJob
  };
  Then then = Then::kReplace;
  std::string sentence;                      // for the user, unless kReplace
  std::int32_t exit_code = 0;                // kEndJob: of the job
  StateLeft left = StateLeft::kWithMembers;  // kEndJob
};
struct FailureTerms {
  std::uint32_t min = 1;      // members of a World
  std::uint32_t desired = 1;  // members that the job is to have
  bool replaces = true;       // lost members are replaced
  bool hosts_may_come = false;
};
// Counts the failure of `member`, which is dead or dismissed and whose failure and cause are known,
// in `budget`. `world`: the newest one. Without replacement, and once a member has finished, no
// failure counts.
[[nodiscard]] FailureVerdict judge_failure(base::TimePoint now, const MemberInfo& member,
                                           const proto::World& world, const MemberTable& members,
                                           const FailureTerms& terms, RestartBudget* budget);

}  // namespace regroup::membership
