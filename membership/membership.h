// The membership of the next World: pure functions. decide() returns its reason, a sentence that
// `regroup status` prints.
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
  std::uint32_t target = 1;      // --initial-size, then the last `resize`; 0: the number of slots
  bool target_follows = false;   // no size was requested: the target grows with the slots
  std::uint32_t spares = 0;      // members kept warm beyond the target, if there are slots
  std::uint32_t slots = 1;       // number of processes that the allocation or nodes can run at once
  bool oversubscribe = false;    // nodes accept more members than slots
  bool grows = false;            // a resize beyond the slots requests more from the allocator
  bool by_node = false;          // members are placed round-robin over the nodes
  bool any_fingerprint = false;  // --reproducible=off
  bool replace = true;           // start a new member for a lost one, up to the target
  bool fixed = false;  // a World of fixed size: member i is rank i, and the launcher starts them
  std::uint32_t shards = 1;                        // V
  base::Duration wait = std::chrono::seconds(30);  // the job fails after this long below min
  base::Duration ready_timeout = std::chrono::seconds(300);  // from a member's start to its Ready
  // Number of results kept for learners. With 0, or if the state has fewer than `learn_above`
  // bytes, joining members copy the state within the regroup.
  std::uint32_t kept_results = 0;
  std::uint64_t learn_above = 0;
  // A member hangs if a step takes this long plus ten median steps; 0: hangs are not detected.
  base::Duration hung_after = std::chrono::seconds(60);
  bool kill_hung = false;                                 // kill hung members, not only report them
  bool drop_hung = false;                                 // and do not replace them, down to min
  base::Duration leave_grace = std::chrono::seconds(10);  // from Excluded to SIGKILL
  proto::Step resume = 0;   // step of the checkpoint to resume from; every member can read it
  RelaunchPolicy relaunch;  // applies until the first member joins
};

enum class MemberState : std::uint8_t {
  kStarting,  // its process was started; it has not sent Ready
  kWarm,      // Ready: may be admitted
  kActive,    // in the World
  kDraining,  // in the World, asked to leave
  kDrained,   // in the World, stopped at a step boundary: it opens no further step
  kLost,      // in the World, dead
  kGone,      // in no World, and never again: excluded, refused or exited
};
[[nodiscard]] const char* state_name(MemberState state);

struct Member {
  proto::MemberId id = 0;
  proto::SlotId slot_id;  // meaningful from kWarm on
  MemberState state = MemberState::kStarting;
  bool finished = false;      // its finish() committed
  bool learning = false;      // warm, but not caught up: admitted only if min requires it
  bool leave_wanted = false;  // not counted towards the target; leaves once it can be spared
  std::string cause;          // why it was lost, if known: "killed by signal 9"
};

// The members of the World in rank order, then the others in the order in which they became warm.
struct Roster {
  std::vector<Member> members;  // lost ones stay until a World without them is formed
  bool started = false;         // a World exists
  bool revoked = false;  // that World is revoked: another must follow, even with equal members
  base::TimePoint below_min_since{};
};

// The members of the next World in rank order, and the reason. Without `next`, keep the present
// World or wait; `broken`: the present World has lost members and must be revoked in any case.
struct Verdict {
  std::optional<std::vector<proto::MemberId>> next;
  bool broken = false;
  std::string why;
};

// The counts of a roster.
struct MemberCounts {
  bool started = false;                                // a World exists
  std::uint32_t starting = 0, warm = 0, learning = 0;  // warm: without learners
  std::uint32_t staying = 0;   // members of the World that will be in the next one
  std::uint32_t in_world = 0;  // members that take part in the World
  std::uint32_t breaking = 0;  // members that have drained, or were lost before they finished
  bool finishing = false;      // some member has finished
  bool unfinished = false;     // some member of the World has not
};
// False if decide() for an unrevoked roster with these counts would return neither `next` nor
// `broken`. Saves building a roster of ten thousand members.
[[nodiscard]] bool may_decide(const MemberCounts& counts, const Policy& policy);
[[nodiscard]] std::string still_starting(std::size_t ready, std::size_t starting);

// Decides the next World. Survivors keep their relative order. Warm members join at the end, up to
// policy.target (not counting leaving members) and policy.max. No World has fewer than policy.min
// members, except after a finish(): then no member joins any more and the others end.
[[nodiscard]] Verdict decide(base::TimePoint now, const Roster& roster, const Policy& policy);
// The learners to admit once they have caught up.
[[nodiscard]] std::vector<proto::MemberId> learners(const Roster& roster, const Policy& policy);

// The position up to which everything is committed: the maximum over the slots of all members of
// `before`, dead ones included, and the resume position of `before`.
[[nodiscard]] proto::Position resume_of(
    const proto::World& before,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots);

}  // namespace regroup::membership
