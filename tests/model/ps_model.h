// An explicit-state model of how the parameter server replicates its ranges: stores and servers on
// three hosts, clients, messages, the coordinator with its journal. ps_check.cc searches it breadth
// first; docs/design/ps_replication.md is the protocol in words. Messages are a set: each that was
// ever sent may arrive at any later moment, any number of times, or never. Each rule that was found
// necessary is a Rule (ps_rules.h): `-off NAME` removes it, and the search finds a counterexample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/moves.h"
#include "tests/model/ps_rules.h"

namespace regroup::model::ps {

using Byte = std::uint8_t;  // a State is bytes only: compared and hashed as such
inline constexpr int kRanges = 2, kHosts = 3, kClients = 2, kPushes = 2;
inline constexpr int kEpochs = 8, kViews = 12, kEntries = 6;
inline constexpr Byte kHole = 15;  // an entry that a replica counts and does not have

enum Kind : Byte { kNone, kMember, kJoining, kDropped };

// A range's copy in the store of a host. It outlives server processes.
struct Replica {
  Byte kind;
  Byte epoch, fence;    // adopted; lower epochs than `fence` are refused as well
  Byte length;          // of the log
  Byte applied, rows;   // entries applied; entries whose rows are written
  Byte copied;          // joining: CopyDone has come
  Byte log[kEntries];   // 1 + number of the push (Push)
  Byte last[kClients];  // number of the last push in the log
};

struct Host {
  Byte up;                               // with its stores
  Byte server;                           // a server process runs
  Byte fresh;                            // and has adopted no view yet
  Byte view;                             // that it has adopted, or that was there before it
  Byte cut;                              // on the other side of a partition
  Byte suspected;                        // the coordinator takes the process for dead, and it lives
  Byte late_at, late_entry, late_range;  // a store to the log that such a process has begun
  Byte stored[kRanges][kHosts];          // as primary: what each has stored in this epoch
  Byte clock[kRanges][kClients];         // as primary: highest clock that the client has said
  Byte led[kRanges];                     // as primary: length of the log that it began with
  Byte copy_done[kRanges];               // as primary: CopyDone was sent in this epoch
  Replica r[kRanges];
};

struct RangeView {
  Byte epoch, primary, replicas, joining;  // bits of hosts; host + 1
};
struct View {
  RangeView r[kRanges];
  Byte clients;  // bits
};

enum Life : Byte { kGone, kLiving, kComing };
struct Client {
  Byte life, view;
  Byte got[kRanges];          // number of the last push that is acknowledged
  Byte seen[kRanges];         // LSN that the client has seen
  Byte clock, start, pulled;  // completed clocks; those before it joined; bits of ranges
};

struct Coordinator {
  Byte up, journaled, announced;  // newest views
  Byte pending;                   // announced, not journaled (without rule kJournal)
  Byte known;                     // hosts whose server it takes for lost
  Byte answer[kRanges][kHosts];   // 1 + length of the log
};

// What has been sent and may arrive.
struct Entries {
  Byte length, committed;
  Byte log[kEntries];
};
struct Copy {  // rows of entries 1 .. upto; CopyDone, the LSN at which Replicate begins, the log's
               // end
  Byte sent, upto, done, start, end;
};
struct Messages {
  Byte push[kClients][kPushes][kRanges];  // bits of epochs
  Entries replicate[kRanges][kEpochs];    // by the primary of that epoch
  Byte stored[kRanges][kEpochs][kHosts];  // cumulative LSN
  Byte whole[kClients];            // 1 + pushed of range 0 before its primary split it; 0: not yet
  Byte pushed[kClients][kRanges];  // cumulative number
  Copy copy[kRanges][kEpochs];
  Byte clock[kClients][kRanges][kEpochs];
  Byte caught[kRanges];  // bits of epochs
};

// What an observer of everything knows: pushes of each range that were committed, in their order.
struct Observer {
  Byte length, epoch;
  Byte log[kEntries];
};

struct State {
  Host h[kHosts];
  View v[kViews];  // 0: none
  Client c[kClients];
  Coordinator co;
  Messages m;
  Observer committed[kRanges];
  Byte split;                // epoch in which range 0 was split
  Byte faults, joins, lost;  // ranges of which no replica is left
};

using Successor = SuccessorOf<State>;

[[nodiscard]] State initial(const Options& o);
// Everything that can happen next; `violation` is set if some of it breaks a promise.
void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation);
// Every client that lives and was not removed has all its pushes acknowledged, or all is lost.
[[nodiscard]] bool goal(const Options& o, const State& s);
// Which rule has this name; kRules if none.
[[nodiscard]] Rule rule_named(std::string_view name);
[[nodiscard]] std::string describe(const State& s);

}  // namespace regroup::model::ps
