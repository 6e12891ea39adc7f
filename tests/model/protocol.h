// An explicit-state model of sections 3 and 4 of docs/architecture.md: members, agents, messages and one
// coordinator. protocol_check.cc searches it breadth first; README.md says what is abstracted. Every rule of
// the page that was found necessary is a Rule here: `-off NAME` removes it, and the search finds a
// counterexample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::model::protocol {

using Byte = std::uint8_t;  // a State is bytes only: compared and hashed as such
inline constexpr int kMembers = 5, kHosts = 3, kGenerations = 7, kWorlds = 6, kJoiner = 4;
inline constexpr Byte kGarbage = 15;

enum Rule : std::uint32_t {
  kReopen,       // revoke marks committed words too, and only an unmarked one may open the next step
  kCatchUp,      // who applies the result of `resume` says so in its word; resume never decreases
  kJoinFails,    // joining g fails if g is revoked already ("revoked up to" only grows)
  kUnseal,       // a seal is withdrawn before its buffer is written again
  kRevokeOld,    // a revoke of g closes words of earlier generations too
  kHello,        // a restarted coordinator asks the agents what they know
  kNewNumber,    // after a restart the next generation is above every journaled one
  kAllWords,     // resume counts the words of dead members and of learners
  kMemfd,        // the new memfd gets both result buffers
  kJournal,      // a World is journaled before it is announced
  kSeqVote,      // (no effect here: votes are monotonic)
  kGate,         // nobody writes a result of g+1 before all of g on its host left g
  kFence,        // agents refuse lower incarnations and older Worlds
  kSeedHost,     // a host that holds seals of the plan counts as lost like one with members
  kJoinFetch,    // a joiner behind resume copies the result from a member
  kIncarnation,  // the guardian counts incarnations
  kLastWrite,    // only the thread that holds the robust futex writes results
  kReapLine,     // a dead member's buffers are used again only after its reap
  kLineUse,      // and not while a World still counts on its word or its seals
  kFinishFirst,  // exit 0 only after finish() committed
  kFinishWord,   // the word of a member that finished still counts
  kFinishJoin,   // no joiner is admitted once finish() committed
  kRules
};
inline constexpr const char* kRuleNames[kRules] = {
    "reopen",    "catch",   "join",    "sealinv", "revle",    "hello",    "newgen", "learn",
    "memfd",     "jbefore", "seqvote", "late",    "incfence", "seedhost", "jfetch", "incj",
    "lastwrite", "reap",    "lineuse", "finexit", "finword",  "finjoin"};

struct Options {
  std::uint32_t off = 0;  // bits of rules
  int steps = 2;
  int faults = 1;
  std::string kinds = "k";  // of faults: see successors()
  int on_host[2] = {2, 1};  // members 0, 1 and 2, 3
  bool joiner = false;
  int joiner_host = 2;
  bool reuse_lines = false;  // the joiner may get the line of a dead member
  bool finish = false;       // finish() follows the last step
  int result_buffers = 2;
  bool votes_by_generation = true;
  bool plan_reversed = false;
  bool check_fence = false;
  std::size_t max_states = 30'000'000;
  bool liveness = true;

  [[nodiscard]] bool has(Rule rule) const { return (off >> rule & 1) == 0; }
  [[nodiscard]] int host_of(int member) const { return member == kJoiner ? joiner_host : member / 2; }
  [[nodiscard]] int intervals() const { return on_host[0] + on_host[1]; }
  [[nodiscard]] int last() const {
    return steps + (finish ? 1 : 0);
  }  // position of finish(), else the last step
};

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
  kFinished
};
enum Phase : Byte { kNone, kOpen, kCommitted, kClosed };

struct Member {
  Byte pc, phase, generation, step, marked;  // the state word
  Byte revoked_up_to, world, at, applied;    // `at`: step it works on
  Byte sealed_step, data, sealed;  // its leaf buffers: what the seals say, what is in them, which intervals
  Byte value, old_map, donor;      // read for the result; maps the old memfd; of the copy
  Byte zombie, torn, late;         // dead but not reaped; threads in its buffers; a store to a result left
  Byte line, exited;               // dead member + 1 whose line it got; exited with status 0
};
struct World {
  Byte generation, incarnation, members, resume, source[4];
};
struct Letter {
  Byte type, incarnation, id;  // 1: revoke generation id, 2: World id
};
struct Agent {
  Byte alive, cut, incarnation, world, revoked, pc, revoking, revoker, n, n_old;
  Letter letters[3], old[4];  // of the living coordinator; of its predecessors
};
enum CoordinatorAt : Byte { kSteady, kRevoking, kDecided, kAnnounce, kCoordinatorDead, kSayHello, kEnd };

struct State {
  Member m[kMembers];
  World w[kWorlds];
  Agent a[kHosts];
  Byte vote[kGenerations][kMembers], done[kGenerations][kMembers];
  Byte result[kHosts][2][3];  // slices of two buffers: the step whose right bytes are there, or garbage
  Byte worlds, at, incarnation, world, journaled, next, sent, reported, report[kMembers];
  Byte excluded, unreapable, wanted, faults, joined, differs, restarted;
};

struct Successor {
  std::string label;  // empty unless asked for
  State state;
  bool fault;
};

[[nodiscard]] State initial(const Options& o);
// Everything that can happen next; `violation` is set if some of it breaks a promise.
void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation);
// Nothing is left to be done: all members of the World have done all steps, or there is nobody left to do
// them.
[[nodiscard]] bool goal(const Options& o, const State& s);
// Which rule has this name; kRules if none.
[[nodiscard]] Rule rule_named(std::string_view name);
[[nodiscard]] std::string describe(const State& s);

}  // namespace regroup::model::protocol
