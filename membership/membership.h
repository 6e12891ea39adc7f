// The membership of the next World, and the plan that assigns its leaves to members: pure
// functions. decide() returns its reason, a sentence that `regroup status` prints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/relaunch.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// JobDone::exit_code of a job whose members have all left on notice: the launcher decides the exit
// status.
inline constexpr std::int32_t kEndedOnNotice = -1;

struct Policy {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::uint32_t target = 1;  // --initial-size at first, then the last `resize`; 0: as many as slots
  bool target_follows = false;  // no size was requested: the target grows with the slots
  std::uint32_t spares = 0;     // members kept warm beyond the target, if there are slots
  // Processes that may run at once: those of the allocation or of the nodes.
  std::uint32_t slots = 1;
  bool oversubscribe = false;    // nodes take more members than slots
  bool grows = false;            // a resize beyond the slots asks the allocator for more
  bool by_node = false;          // members are placed round-robin over the nodes
  bool any_fingerprint = false;  // --reproducible=off
  bool replace = true;           // start a new member for a lost one, up to the target
  bool fixed = false;  // a World of fixed size: member i is rank i, and the launcher starts them
  std::uint32_t shards = 1;                        // V
  base::Duration wait = std::chrono::seconds(30);  // the job fails after this long below min
  base::Duration ready_timeout = std::chrono::seconds(300);  // from a member's start to its Ready
  // Results kept for learners; 0: state is copied inside the regroup ...
  std::uint32_t kept_results = 0;
  std::uint64_t learn_above = 0;  // ... as it is for a state of fewer bytes than this
  // And ten median steps; 0: hung members are not looked for.
  base::Duration hung_after = std::chrono::seconds(60);
  bool kill_hung = false;                                 // else a hung member is only reported
  bool drop_hung = false;                                 // and do not replace it, down to min
  base::Duration leave_grace = std::chrono::seconds(10);  // from Excluded to SIGKILL
  proto::Step resume = 0;   // step of the checkpoint to resume from, which every member can read
  RelaunchPolicy relaunch;  // before the first member joined
};

enum class MemberState : std::uint8_t {
  kStarting,  // its process was started; it has not sent Ready
  kWarm,      // Ready: may be admitted
  kActive,    // in the World
  kDraining,  // in the World, asked to leave
  kDrained,   // in the World, stopped at a step boundary: it opens no further step
  kLost,      // in the World, dead
  kGone,      // in no World and never again: excluded, refused, exited
};
[[nodiscard]] const char* state_name(MemberState state);

struct Member {
  proto::MemberId id = 0;
  proto::SlotId slot_id;  // meaningful from kWarm on
  MemberState state = MemberState::kStarting;
  bool finished = false;      // its finish() committed
  bool learning = false;      // warm, but admitted before it has caught up only if min requires it
  bool leave_wanted = false;  // not counted towards the target; leaves once it can be spared
  std::string cause;          // of its loss, if known: "killed by signal 9"
};

// The members of the World in rank order, then the others in the order in which they became warm.
struct Roster {
  std::vector<Member> members;  // lost ones stay until a World without them is formed
  bool started = false;         // a World exists
  bool revoked = false;         // it is over: another must follow, even with the same members
  base::TimePoint below_min_since{};
};

// The members of the next World in rank order, and the reason. No `next`: keep the present World,
// or wait; with `broken` the present World has lost members and must be revoked anyway.
struct Verdict {
  std::optional<std::vector<proto::MemberId>> next;
  bool broken = false;
  std::string why;
};

// The counts of a roster.
struct MemberCounts {
  bool started = false;                                // a World exists
  std::uint32_t starting = 0, warm = 0, learning = 0;  // warm: without learners
  std::uint32_t staying = 0;                           // in the World, and will be
  std::uint32_t in_world = 0;                          // and take part in it
  std::uint32_t breaking = 0;                          // drained, or lost before they had finished
  bool finishing = false,
       unfinished = false;  // some member has finished; some in the World has not
};
// False if decide() of a roster with these counts, not revoked, would return no `next` and not
// `broken`: saves the roster of ten thousand members.
[[nodiscard]] bool may_decide(const MemberCounts& counts, const Policy& policy);
[[nodiscard]] std::string still_starting(std::size_t ready, std::size_t starting);

// Survivors keep their relative order. Warm members join at the end, up to policy.target (leaving
// members not counted) and policy.max. No World has fewer than policy.min members, except that
// after a member has finished no member joins any more and the others end.
[[nodiscard]] Verdict decide(base::TimePoint now, const Roster& roster, const Policy& policy);
// The learners that are to be admitted once they have caught up.
[[nodiscard]] std::vector<proto::MemberId> learners(const Roster& roster, const Policy& policy);

// The position up to which everything is committed: the maximum over the slots of all members of
// `before`, dead ones included, and the resume position of `before`.
[[nodiscard]] proto::Position resume_of(
    const proto::World& before,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots);

// Returns the plan of step `step`: the slot that holds or computes each leaf. Leaves that are
// sealed on a node of the next World stay where they are, also in the slots of dead members. A leaf
// that a survivor was to compute stays with it. The leaves of lost members go, in contiguous runs,
// to the survivors with the fewest leaves left; a member that needs_state or replays gets none, and
// at least one member must do neither. If a member's buffers cannot hold its leaves, all get even
// shares and other seals are void. `before`: the owner of each leaf until now; empty (the first
// World): even shares.
[[nodiscard]] std::vector<proto::SlotId> plan_leaves(
    proto::Step step, std::uint32_t shards, const std::vector<proto::SlotId>& before,
    const std::vector<proto::WorldMember>& next,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots);

}  // namespace regroup::membership
