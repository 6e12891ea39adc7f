// The rules that the protocol model can do without one at a time, and what a run is about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace regroup::model::protocol {

inline constexpr int kJoiner = 4;

enum Rule : std::uint8_t {
  kReopen,      // revoke marks committed words too, and only an unmarked one may open the next step
  kCatchUp,     // who applies the result of `resume` says so in its word; resume never decreases
  kJoinFails,   // joining g fails if g is revoked already ("revoked up to" only grows)
  kUnseal,      // a seal is withdrawn before its buffer is written again
  kRevokeOld,   // a revoke of g closes words of earlier generations too
  kHello,       // a restarted coordinator asks the agents what they know
  kNewNumber,   // after a restart the next generation is above every journaled one
  kAllWords,    // resume counts the words of dead members and of learners
  kJournal,     // a World is journaled before it is announced
  kSeqVote,     // (no effect here: votes are monotonic)
  kLeaveFirst,  // nobody writes a result of g+1 before all of g on its host left g
  kFence,       // agents refuse lower incarnations and older Worlds
  kSeedHost,    // a host that holds seals of the plan counts as lost like one with members
  kJoinFetch,   // a joiner behind resume copies the result from a member
  kIncarnation,  // the guardian counts incarnations
  kLastWrite,    // only the thread that holds the robust futex writes results
  kReapSlot,     // a dead member's buffers are used again only after its reap
  kSlotUse,      // and not while a World still counts on its word or its seals
  kFinishFirst,  // exit 0 only after finish() committed
  kFinishWord,   // the word of a member that finished still counts
  kFinishJoin,   // no joiner is admitted once finish() committed
  kLeaseClose,   // an agent without a coordinator closes its members
  kLeaseWait,    // nobody goes on from a snapshot before that has happened wherever no death is
                 // proved
  kLeaseWord,    // the lease's end stands in the arena, and members look there before they commit
  kLeaseTold,    // an agent whose lease has ended says so as of a revoke
  kLeaseFresh,   // and takes no World that was sent before it did
  kNewSlot,      // a new member's slot is closed for every generation that its agent knows of
  kHold,         // an agent ends its members only when nobody can restart the coordinator any more
  kRingCommit,   // a learner gets committed results only
  kRingKept,     // and each stays in the ring until it is replayed
  kProve,        // it proves its state before it may enter
  kLearnStop,    // it replays nothing once it has said what it has
  kBehind,       // one that is behind resume copies the state before it opens a step
  kLearnVote,    // until then the others wait for its vote
  kRules
};
inline constexpr const char* kRuleNames[kRules] = {
    "reopen",     "catch",     "join",      "sealinv",   "revle",      "hello",    "newgen",
    "learn",      "jbefore",   "seqvote",   "late",      "incfence",   "seedhost", "jfetch",
    "incj",       "lastwrite", "reap",      "slotuse",   "finexit",    "finword",  "finjoin",
    "leaseclose", "leasewait", "leaseword", "leasetold", "leasefresh", "newslot",  "hold",
    "ringcommit", "ringkept",  "prove",     "learnstop", "behind",     "learnvote"};

struct Options {
  std::uint64_t off = 0;  // bits of rules
  int steps = 2;
  int faults = 1;
  std::string kinds = "k";  // of faults: see successors()
  int on_host[2] = {2, 1};  // members 0, 1 and 2, 3
  bool joiner = false;
  int joiner_host = 2;
  bool reuse_slots = false;  // the joiner may get the slot of a dead member
  bool finish = false;       // finish() follows the last step
  int ring = 0;  // results that a learner's ring holds; 0: it reads those of the members
  // Time passes for agents without a coordinator, and there is a snapshot of step 0.
  bool lease = false;
  bool heals = false;  // a link that is down may come back
  int result_buffers = 2;
  bool votes_by_generation = true;
  bool plan_reversed = false;
  bool check_fence = false;
  std::size_t max_states = 30'000'000;
  bool liveness = true;

  [[nodiscard]] bool has(Rule rule) const { return (off >> rule & 1) == 0; }
  [[nodiscard]] int host_of(int member) const {
    return member == kJoiner ? joiner_host : member / 2;
  }
  [[nodiscard]] int intervals() const { return on_host[0] + on_host[1]; }
  [[nodiscard]] int last() const {
    return steps + (finish ? 1 : 0);
  }  // position of finish(), else the last step
};

}  // namespace regroup::model::protocol
