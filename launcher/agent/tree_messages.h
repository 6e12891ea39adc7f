// Messages for a tree of agents: routes, events of children, and the envelope for forwarded
// messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::agent {

// --- controller -> agent
// Start children. Sent before Setup; answered by ChildEvents of each child.
struct StartAgents {
  struct Child {
    proto::NodeId node = 0;
    std::string name;       // of its host, as the user wrote it
    std::string user = {};  // login name; "": as ssh has it
  };
  std::string from;              // name of the host that starts them, for messages
  std::vector<std::string> ssh;  // the command that reaches a host; empty: all are forked
  std::string program;
  std::string wdir;
  std::uint32_t limit_ms = 0;
  std::vector<Child> children;
  std::string preferred = {};  // runs in place of `program` where it exists
};
// `nodes` are reached through the child `via` from now on.
struct AddRoute {
  proto::NodeId via = 0;
  std::vector<proto::NodeId> nodes;
};
// End the child `node`, or drop it from the routes. To an agent itself: it was given up and must
// exit.
struct EndAgent {
  proto::NodeId node = 0;
};

// --- agent -> controller
// An event of one of the sender's children.
struct ChildEvent {
  // kLost is the last event of a child.
  enum class Kind : std::uint8_t { kConnected, kSilent, kRecovered, kOutput, kLost };
  Kind kind = Kind::kConnected;
  proto::NodeId node = 0;
  std::string text;                   // kConnected: its address; kOutput: a line of its output
  base::Code code = base::Code::kOk;  // kLost: and `text` is a sentence that names the host
};

// --- both
// The envelope of a forwarded message: from the controller to `nodes` below the receiver, or from
// the one node in `nodes`, below the sender, to the controller.
struct Relayed {
  std::vector<proto::NodeId> nodes;
  std::vector<std::byte> message;
  bool answered = false;  // down: each of them replies; up: this is such a reply
  // Session number of the message for each of `nodes` (reliable_session.h); empty: it has none.
  std::vector<std::uint64_t> numbers = {};
};
// Acknowledges all messages of the session up to `number`. Is not numbered itself.
struct Ack {
  enum class Action : std::uint8_t {
    kNone,
    // Agent -> controller, first message on a new connection: the parent is lost, become my parent.
    // Answered by kRetransmit or EndAgent.
    kReparent,
    // Controller -> agent, to a reparented agent and all agents below it: retransmit what is above
    // `number`.
    kRetransmit,
  };
  std::uint64_t number = 0;
  Action action = Action::kNone;
};
// --- agent -> controller
// Replies of several nodes, each from one node.
struct Gathered {
  std::vector<Relayed> messages;
};
}  // namespace regroup::agent
