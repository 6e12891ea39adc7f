// What agents of a tree are told and tell beside the messages of messages.h: who is below whom, and the
// envelope in which the others travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/world.h"

namespace regroup::node {

// --- controller -> agent
// Before Setup, to one that is to have agents below it: answered by ChildEvent of each.
struct StartAgents {
  struct Child {
    core::NodeId node = 0;
    std::string name;       // of its host, as the user wrote it
    std::string user = {};  // to log in there as; "": as ssh has it
  };
  std::string from;              // the name of the host that starts them, for sentences
  std::vector<std::string> ssh;  // the command that reaches a host; empty: all are forked
  std::string program;
  std::string wdir;
  std::uint32_t limit_ms = 0;
  std::vector<Child> children;
  std::string preferred = {};  // in place of `program`, where it is there
};
// From now on `nodes` are reached through `via`, which is a child.
struct AddRoute {
  core::NodeId via = 0;
  std::vector<core::NodeId> nodes;
};
// A child is to leave, or is not wanted any more.
struct EndAgent {
  core::NodeId node = 0;
};

// --- agent -> controller
// Of an agent's own child.
struct ChildEvent {
  enum class Kind : std::uint8_t {
    kConnected,
    kSilent,
    kRecovered,
    kOutput,
    kLost
  };  // kLost: the last of it
  Kind kind = Kind::kConnected;
  core::NodeId node = 0;
  std::string text;                   // kConnected: its address; kOutput: a line of its output
  core::Code code = core::Code::kOk;  // kLost: and `text` is a sentence that names the host
};

// --- both
// What the controller says to `nodes` below the receiver, or what the one in it, below the sender, says to
// the controller.
struct Relayed {
  std::vector<core::NodeId> nodes;
  std::vector<std::byte> message;
  bool answered = false;  // by each of them; up: it is such an answer
  // Of the message in the reliable_session between the controller and each of `nodes` (reliable_session.h);
  // empty: it has none.
  std::vector<std::uint64_t> numbers = {};
};
// All of the reliable_session up to this number has come. Has no number itself.
struct Ack {
  enum class Action : std::uint8_t {
    kNone,
    kReparent,    // agent -> controller, the first message on a new link: my parent is gone. Answered by
                  // kRetransmit, or by EndAgent: it is not wanted any more
    kRetransmit,  // controller -> agent, to one that was adopted, and to all below it: say again all that is
                  // above it
  };
  std::uint64_t number = 0;
  Action action = Action::kNone;
};
// --- agent -> controller
// The answers of many, each of one node.
struct Gathered {
  std::vector<Relayed> messages;
};
}  // namespace regroup::node
