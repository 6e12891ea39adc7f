// An explicit-state model of sections 3 and 4 of docs/design/architecture.md: members, agents,
// messages and one coordinator. protocol_check.cc searches it breadth first; README.md says what is
// abstracted. Every rule of the page that was found necessary is a Rule (protocol_rules.h): `-off
// NAME` removes it, and the search finds a counterexample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/moves.h"
#include "tests/model/protocol_rules.h"

namespace regroup::model::protocol {

using Byte = std::uint8_t;  // a State is bytes only: compared and hashed as such
inline constexpr int kMembers = 5, kHosts = 3, kGenerations = 9, kWorlds = 8;
inline constexpr Byte kGarbage = 15;

enum Pc : Byte {
  kDead,
  kIdle,
  kCatchingUp,
  kOpening,
  kCompute,
  kComputing,
  kReduce,
  kWrite,
  kVoteWait,
  kCommitWait,
  kApply,
  kNext,
  kNext2,
  kDone,
  kLearnerNone,
  kLearnerCopy,
  kLearner,
  kJoinerCopy,
  kFinishVote,
  kFinishWait,
  kFinished,
  kLearnerReady,   // its digest is proved, or it asks for a copy while training pauses
  kLearnerStopped  // has said what it has
};
enum Phase : Byte { kNone, kOpen, kCommitted, kClosed };

struct Member {
  Byte pc, phase, generation, step, marked;  // the state word
  Byte revoked_up_to, world, at, applied;    // `at`: step it works on
  Byte sealed_step, data,
      sealed;         // its leaf buffers: what the seals say, what is in them, which intervals
  Byte value, donor;  // read for the result; of the copy
  Byte zombie, torn, late;  // dead but not reaped; threads in its buffers; a store to a result left
  Byte slot, exited;        // dead member + 1 whose slot it got; exited with status 0
  Byte ring, restarts, bad;  // of a learner: last result in its ring; full rings; a byte is wrong
};
struct World {
  Byte generation, incarnation, members, resume, source[4];
};
struct Letter {
  Byte type, incarnation, id;  // 1: revoke generation id, 2: World id
};
enum Cut : Byte { kLinked, kLinkDown, kAgentStopped };
struct Agent {
  Byte alive, cut, lease_over, incarnation, world, revoked, pc, revoking, revoker, n, n_old;
  Letter letters[3], old[4];  // of the living coordinator; of its predecessors
};
enum CoordinatorAt : Byte {
  kSteady,
  kRevoking,
  kDecided,
  kAnnounce,
  kCoordinatorDead,
  kSayHello,
  kEnd,
  kWaitLease  // nobody who can be reached has the state
};

struct State {
  Member m[kMembers];
  World w[kWorlds];
  Agent a[kHosts];
  Byte vote[kGenerations][kMembers], done[kGenerations][kMembers];
  Byte result[kHosts][2]
             [3];  // slices of two buffers: the step whose right bytes are there, or garbage
  Byte worlds, at, incarnation, world, journaled, next, sent, reported, report[kMembers];
  Byte excluded, unreapable, wanted, faults, joined, differs, restarted;
  Byte guardian_dead, ended;  // hosts whose agents ended their members for want of a coordinator
  Byte from_snapshot;         // generation of the World that went on from a snapshot
};

using Successor = SuccessorOf<State>;

[[nodiscard]] State initial(const Options& o);
// Everything that can happen next; `violation` is set if some of it breaks a promise.
void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation);
// Nothing is left to be done: all members of the World have done all steps, or there is nobody left
// to do them.
[[nodiscard]] bool goal(const Options& o, const State& s);
// Which rule has this name; kRules if none.
[[nodiscard]] Rule rule_named(std::string_view name);
[[nodiscard]] std::string describe(const State& s);

}  // namespace regroup::model::protocol
