// Inputs and effects of Coordinator, as plain data. The driver (launcher/job, or a simulation)
// performs the effects in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/variant.h"
#include "membership/coordinator/journal_entry.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// The number of this launch of the job, and how the earlier ones ended: preempted, failed, or
// killed without a record.
struct Attempt {
  std::uint32_t number = 1;
  std::uint32_t preempted = 0;
  std::uint32_t failed = 0;
  std::uint32_t killed = 0;
};

struct JobInfo {
  std::string id;
  std::uint64_t seed = 0;
  // Nodes for members, with one agent each. Empty: the driver reports nodes by NodeUp and NodeLost,
  // and the coordinator waits for NodesKnown, which says that the first ones are complete.
  std::vector<proto::NodeId> nodes{0};
  [[nodiscard]] bool driver_reports_nodes() const { return nodes.empty(); }
  Attempt attempt = {};                    // for status
  std::vector<proto::NodeId> placed = {};  // the node of each rank, in a World of fixed size
};

// The sender of a message: the agent of node `id` (for messages about nodes: the driver, which
// holds the connections), or the control command that the driver numbered `id`.
struct Sender {
  enum class Kind : std::uint8_t { kAgent, kClient };
  Kind kind = Kind::kAgent;
  std::uint64_t id = 0;
};

struct ToAgent {           // JobDone goes to the driver if that reports the nodes
  proto::NodeId node = 0;  // or proto::kEveryNode
  proto::Body body;        // sent in a Message with the coordinator's incarnation
};
struct ToClient {
  std::uint64_t client = 0;
  proto::Body body;
};
struct Journal {  // on disk before any later effect is performed; a World or an Intent with
                  // fdatasync
  JournalEntry entry;
};
struct Say {  // a line for the user's terminal
  std::string sentence;
};
// What a failed job leaves to be saved: the members' state, states that differ, or nothing.
enum class StateLeft : std::uint8_t { kWithMembers, kDiverged, kNone };

struct Done {  // the last effect: the driver kills what still runs
  std::int32_t exit_code = 0;
  std::string reason;
};
using Effect = base::Variant<ToAgent, ToClient, Journal, Say, Done>;
using Effects = std::vector<Effect>;

}  // namespace regroup::membership
