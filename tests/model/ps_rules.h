// The rules that the model of the parameter server's replication can do without one at a time, and
// what a run is about. docs/design/ps_replication.md says what each rule is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace regroup::model::ps {

enum Rule : std::uint8_t {
  kStored,       // a push is acknowledged once all replicas of the epoch have stored it
  kDuplicate,    // a push that is in the log already is acknowledged only once it is committed
  kNumber,       // a push keeps its number when it is sent again
  kLower,        // a replica refuses Replicate of a lower epoch
  kPrevious,     // a push waits until the client's previous push on this range is in the log
  kLastPush,     // a promoted backup has the last push number of each client
  kLongest,      // of several backups the one with the longest log is promoted
  kAnswers,      // after all that survive have answered
  kFence,        // and each that has answered refuses the epoch before
  kFenceSeen,    // a restarted coordinator begins a new epoch where a store refuses the last one
  kJournal,      // a view is journaled before it is announced
  kShown,        // readers see committed pushes only
  kToken,        // a reader waits until the replica has what the reader saw before
  kAtOnce,       // a backup applies what it stores at once only if nobody else must store it
  kReadAll,      // a linearizable read asks every replica that a commit waits for
  kReadNew,      // and a new primary first commits the log that it began with
  kRemoved,      // a client that is not in the view is refused
  kRowVersion,   // an entry that is applied again skips the rows that have it
  kMutex,        // a successor on the same host waits for the death of the owner
  kCopyCounts,   // from CopyDone on the primary waits for the joining replica, too
  kCaughtAll,    // a joining replica says Caught once it has all that was in the log at CopyDone
  kCopyLast,     // a copy carries the last push numbers
  kCopyGap,      // Replicate to a joining replica starts at the first entry that the copy lacks
  kNotPromoted,  // a joining replica is never promoted
  kNotCounted,   // a joining replica replaces nobody whose Stored is waited for
  kTruncate,     // a store that comes back discards what was not committed
  kJoinEpoch,    // naming or dropping a joining replica begins a new epoch
  kNewest,       // a range goes on only from a replica of its newest epoch
  kClockPushes,  // a clock counts in a range once the client's pushes there are committed
  kClockAgain,   // a client says its clock again in a new epoch
  kClockGone,    // the clock of a client that is not in the view does not count
  kClockKnown,   // a joining client starts once all servers have adopted the view that names it
  kOwnPushes,    // a pull waits for the client's own pushes
  kPartialWait,  // a lost range is restored only after its hosts have ended their members
  kSplitLast,    // both halves of a split range have the last push numbers
  kPushedEpoch,  // Pushed of a half does not count for a client that has not heard of the split
  kRules
};
inline constexpr const char* kRuleNames[kRules] = {
    "stored",    "duplicate",  "number",    "lower",       "previous",  "last",
    "longest",   "answers",    "fence",     "seen",        "journal",   "shown",
    "token",     "atonce",     "readall",   "readnew",     "removed",   "rows",
    "mutex",     "copycounts", "caughtall", "copylast",    "copygap",   "promoted",
    "counted",   "truncate",   "joinepoch", "newest",      "clockpush", "clockagain",
    "clockgone", "clockknown", "ownpushes", "partialwait", "splitlast", "pushedepoch"};

struct Options {
  std::uint64_t off = 0;  // bits of rules
  int ranges = 1;
  int replicas = 2;  // on hosts 0 .. replicas - 1 at the start; host r leads range r
  int hosts = 3;
  int clients = 2;
  int pushes = 2;       // of each client
  std::string touches;  // ranges of each push, clients in order: a, b or c (both); empty: all
  int faults = 1;
  std::string kinds = "k";    // of faults: ps_faults.cc
  int joins = 0;              // replicas that join
  bool two_servers = false;   // each host has a second server process, which takes over
  bool rows = false;          // an entry is applied in two steps: its rows, then the LSN
  bool reads = false;         // clients read from any replica and remember what they saw
  bool clocks = false;        // ssp: a client pulls from all ranges before each of its pushes
  int bound = 0;              // of staleness
  bool client_joins = false;  // the last client joins later
  bool split = false;         // range 0 holds all keys at first, and is split into 0 and 1
  bool partial = false;       // a lost range begins again from a checkpoint (that has no push)
  bool heals = false;         // a partition ends
  std::size_t max_states = 30'000'000;
  bool liveness = true;

  [[nodiscard]] bool has(Rule rule) const { return (off >> rule & 1) == 0; }
};

}  // namespace regroup::model::ps
