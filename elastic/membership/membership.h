// Who should be in the next World, and who computes which leaf in it: pure functions. decide() returns its
// reason, the sentence that `regroup status` prints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"
#include "elastic/membership/relaunch.h"

namespace regroup::membership {

struct Policy {
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::uint32_t target = 1;      // --start at first, then what `resize` asked for; 0: as many as slots
  bool target_follows = false;   // the target grows with the slots: nobody has said it
  std::uint32_t spares = 0;      // that many more are kept warm, where there are slots
  std::uint32_t slots = 1;       // what the allocation allows to run at once; of nodes that come: theirs
  bool oversubscribe = false;    // nodes that come take more than their slots
  bool grows = false;            // who resizes the job beyond them asks for more
  bool by_node = false;          // members are dealt out to the nodes in turn
  bool any_fingerprint = false;  // --bits=off
  bool replace = true;           // start a new member for a lost one, up to the target
  bool fixed = false;            // a World of fixed size: member i is rank i, and none is started here
  std::uint32_t shards = 1;      // V
  core::Duration wait = std::chrono::seconds(30);            // below min for longer than this: the job fails
  core::Duration ready_timeout = std::chrono::seconds(300);  // from a member's start to its Ready
  std::uint32_t kept_results = 0;  // past results kept for learners; 0: state is copied inside the regroup
  std::uint64_t learn_above = 0;   // as it is where it takes fewer bytes than this
  core::Duration hung_after = std::chrono::seconds(60);   // and ten median steps; 0: nobody is watched
  bool kill_hung = false;                                 // who stands still is said in any case
  bool drop_hung = false;                                 // and not replaced, down to min
  core::Duration leave_grace = std::chrono::seconds(10);  // from Excluded to SIGKILL
  core::Step resume = 0;    // of the checkpoint that the job goes on from, which every member can read
  RelaunchPolicy relaunch;  // before the first member joined
};

enum class MemberState : std::uint8_t {
  kStarting,  // its process runs, it has not said Ready
  kWarm,      // Ready: may be admitted
  kActive,    // in the World
  kDraining,  // in the World, told to leave
  kDrained,   // in the World, stands at a step boundary and takes no further part
  kLost,      // in the World, dead
  kGone,      // in no World and never again: excluded, refused, exited
};
[[nodiscard]] const char* state_name(MemberState state);

struct Member {
  core::MemberId id = 0;
  core::Seat seat;  // meaningful from kWarm on
  MemberState state = MemberState::kStarting;
  bool finished = false;      // its finish() committed
  bool learning = false;      // warm, and comes in only where the others cannot do without it
  bool leave_wanted = false;  // does not count towards the target; leaves once it can be spared
  std::string cause;          // of a lost one, if known: "killed by signal 9"
};

// In rank order: first the members of the World as they stand in it, then the others in the order in which
// they became warm.
struct Roster {
  std::vector<Member> members;  // lost ones stay until a World without them is formed
  bool started = false;         // a World exists
  bool revoked = false;         // and is over: another must follow, changed or not
  core::TimePoint below_min_since{};
};

// The members of the next World in rank order, and why. Without `next` nothing is to be done now, or nothing
// can be done: `broken` tells that the World has lost members and must be revoked all the same.
struct Verdict {
  std::optional<std::vector<core::MemberId>> next;
  bool broken = false;
  std::string why;
};

// A roster in numbers.
struct MemberCounts {
  bool started = false;                                // a World exists
  std::uint32_t starting = 0, warm = 0, learning = 0;  // warm: those that do not learn
  std::uint32_t staying = 0;                           // in the World, and will be
  std::uint32_t in_world = 0;                          // and take part in it
  std::uint32_t breaking = 0;                          // drained, or lost before they had finished
  bool finishing = false, unfinished = false;          // some member has finished; some in the World has not
};
// False: decide() of such a roster, not revoked, has no `next` and finds nothing broken. For those who would
// have to make ten thousand rosters to be told so.
[[nodiscard]] bool may_decide(const MemberCounts& counts, const Policy& policy);
[[nodiscard]] std::string still_starting(std::size_t ready, std::size_t starting);

// Survivors keep their relative order; the warm join at the end, up to policy.target (those about to
// leave not counted) and policy.max. No World below
// policy.min members, except that a job of which any member finished takes nobody in and lets the others end.
[[nodiscard]] Verdict decide(core::TimePoint now, const Roster& roster, const Policy& policy);
// The learning members that come in as soon as they have caught up.
[[nodiscard]] std::vector<core::MemberId> learners(const Roster& roster, const Policy& policy);

// Everything up to here is committed: the maximum over the lines of the members of `before` (dead ones
// included, without their help) and of its own resume.
[[nodiscard]] core::Position resume_of(const core::World& before,
                                       const std::map<core::NodeId, std::vector<core::SlotReport>>& lines);

// The plan for step `step`: what is sealed on a node of the next World stays where it is, also with the dead;
// a leaf that a survivor was to compute stays with it; the leaves of the lost go, in contiguous runs, to the
// survivors with the fewest leaves left to compute. Who needs_state gets no further ones; at least one member
// does not. If that is more than somebody's buffers can hold: even shares, and what is sealed elsewhere is
// void. `before` owned the leaves until now; empty (the first World): an even share for everybody.
[[nodiscard]] std::vector<core::Seat> plan_leaves(
    core::Step step, std::uint32_t shards, const std::vector<core::Seat>& before,
    const std::vector<core::WorldMember>& next,
    const std::map<core::NodeId, std::vector<core::SlotReport>>& lines);

}  // namespace regroup::membership
