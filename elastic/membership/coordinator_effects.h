// What goes into Coordinator and what it wants done, as plain data; its driver (launcher/cmd, or a
// simulation) does it in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/variant.h"
#include "core/world.h"
#include "elastic/membership/journal_entry.h"

namespace regroup::membership {

// The how many-th time that a job was begun, and how earlier ones ended: on a notice, by a failure, without a
// word.
struct Attempt {
  std::uint32_t number = 1, preempted = 0, failed = 0, killed = 0;
};

struct JobInfo {
  std::string id;
  std::uint64_t seed = 0;
  // Where members can be started, one agent each. Empty: the driver tells of them, with NodeUp and NodeLost,
  // and of the first ones with NodesKnown, which the coordinator waits for.
  std::vector<core::NodeId> nodes{0};
  Attempt attempt = {};                   // for status
  std::vector<core::NodeId> placed = {};  // by rank, where the ranks of a World of fixed size run
};

// Who sent a message: the agent of node `id` (of what is said of nodes: whoever holds their connections), or
// the control command that the driver numbered `id`.
struct Sender {
  enum class Kind : std::uint8_t { kAgent, kClient };
  Kind kind = Kind::kAgent;
  std::uint64_t id = 0;
};

struct ToAgent {          // JobDone of a job whose nodes the driver tells of: to the driver
  core::NodeId node = 0;  // or core::kEveryNode
  core::Body body;        // goes out in a Message with the coordinator's incarnation
};
struct ToClient {
  std::uint64_t client = 0;
  core::Body body;
};
struct Journal {  // written before any effect after it is performed; a World or an Intent with fdatasync
  JournalEntry entry;
};
struct Say {  // a line for the user's terminal
  std::string sentence;
};
// What a job that fails leaves to be saved: the newest state, states that differ, or nothing.
enum class StateLeft : std::uint8_t { kWithMembers, kDiverged, kNone };

// JobDone::exit_code of a job whose members have all left on notice: whoever ends it knows its status.
inline constexpr std::int32_t kEndedOnNotice = -1;

struct Done {  // last effect ever; what still runs is to be killed
  std::int32_t exit_code = 0;
  std::string reason;
};
using Effect = core::Variant<ToAgent, ToClient, Journal, Say, Done>;
using Effects = std::vector<Effect>;

}  // namespace regroup::membership
