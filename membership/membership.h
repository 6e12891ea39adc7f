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
#include "proto/on_hang.h"
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
  std::uint32_t shards = 1;  // V
  // The job fails after this long below min.
  base::Duration min_members_timeout = std::chrono::seconds(30);
  base::Duration ready_timeout = std::chrono::seconds(300);  // from a member's start to its Ready
  // Number of results kept for learners. With 0, or if the state has fewer than `learn_above`
  // bytes, joining members copy the state within the regroup.
  std::uint32_t kept_results = 0;
  std::uint64_t learn_above = 0;
  // A member hangs if a step takes this long plus ten median steps; 0: hangs are not detected.
  base::Duration hang_timeout = std::chrono::seconds(60);
  proto::OnHang on_hang = proto::OnHang::kReport;
  base::Duration leave_grace = std::chrono::seconds(10);  // from Excluded to SIGKILL
  std::optional<proto::Plane> plane;                      // --plane; empty: auto
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

// The transitions of a member's life; there is no other. A restarted coordinator begins with the
// states that are in its journal.
struct MemberTransition {
  MemberState from;
  MemberState to;
};
inline constexpr MemberTransition kMemberTransitions[] = {
    {MemberState::kStarting, MemberState::kWarm},     // its Ready was accepted
    {MemberState::kStarting, MemberState::kGone},     // its process ended, or was dismissed
    {MemberState::kWarm, MemberState::kActive},       // a World with it was formed
    {MemberState::kWarm, MemberState::kGone},         // it is dead, or was dismissed
    {MemberState::kActive, MemberState::kDraining},   // it got its Notice
    {MemberState::kActive, MemberState::kDrained},    // it had stopped before it could be spared
    {MemberState::kActive, MemberState::kLost},       // it is dead
    {MemberState::kDraining, MemberState::kDrained},  // it stopped at a step boundary
    {MemberState::kDraining, MemberState::kLost},     // it is dead
    {MemberState::kDrained, MemberState::kLost},      // it is dead
    {MemberState::kDrained, MemberState::kGone},      // it was dismissed
    {MemberState::kLost, MemberState::kGone},         // a World without it was formed
};
// True if a member in `from` may be in `to` next, or stays in it.
[[nodiscard]] bool may_follow(MemberState from, MemberState to);

// How a member that joins a running job gets the state. docs/design/catch_up.md.
enum class CatchUp : std::uint8_t {
  kCopy,      // it copies the state inside the regroup that admits it, or has it
  kLearning,  // a state transfer brings it up; admitted before only if min requires it, with a copy
  kCaughtUp,  // as kLearning, and has what the transfer brings; waits for the other learners
  kReplays    // has it, and may be admitted or is: it replays to the state of its World
};
enum class CatchUpEvent : std::uint8_t {
  kOrdered,   // it is to have a state transfer
  kDone,      // the transfer has brought it up to a step
  kAdmitted,  // learners that have caught up are admitted now
  kUndone,    // what the transfer brought is of no use any more
  kGivenUp    // no further transfer is tried
};
// The table of transitions, in membership.cc.
[[nodiscard]] CatchUp after(CatchUp state, CatchUpEvent event);
// Waits for a state transfer, so it is not admitted unless min requires it.
[[nodiscard]] inline bool is_learner(CatchUp state) {
  return state == CatchUp::kLearning || state == CatchUp::kCaughtUp;
}
// Has what a state transfer brought.
[[nodiscard]] inline bool has_caught_up(CatchUp state) {
  return state == CatchUp::kCaughtUp || state == CatchUp::kReplays;
}

struct Member {
  proto::MemberId id = 0;
  proto::SlotId slot_id;  // meaningful from kWarm on
  MemberState state = MemberState::kStarting;
  CatchUp catch_up = CatchUp::kCopy;
  // Neither is a state: a member in the World finishes before it is lost or gone, and the wish that
  // it leaves may come in any state of a living member.
  bool finished = false;      // its finish() committed
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
  bool started = false;  // a World exists
  std::uint32_t starting = 0;
  std::uint32_t warm = 0;  // without learners
  std::uint32_t learning = 0;
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
