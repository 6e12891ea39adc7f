// The door through which agents get onto hosts. Each way (ssh, fork, none at all) is one factory; whoever
// waits for agents sees the same events from all of them. docs/design/hosts.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/world.h"

namespace regroup::launcher {

struct AgentOrder {
  core::NodeId node = 0;               // one order for each
  std::string host;                    // as the user wrote it, which is what messages say
  std::string program;                 // an absolute path on that host
  std::vector<std::string> arguments;  // after the program's name; any bytes but 0
  std::string wdir;                    // "": wherever it starts
  std::string user = {};               // to log in there as; "": as ssh has it
  std::string preferred = {};          // a program that runs in place of `program` where it is there
  std::string address = {};            // what the command that reaches it calls the host; "": as `host`
};

// Called from the loop, never from within a Spawner's function.
struct SpawnEvents {
  // The host is about to run the program, which has the secret on its standard input and nothing behind it.
  // The input stays open as long as the launcher lives and has not called end().
  std::function<void(core::NodeId)> up;
  // The agent wrote this line to its output or error output. No control characters are in it.
  std::function<void(core::NodeId, const std::string& line)> line;
  // Once for each order and last: ok if the agent exited with 0, else one sentence that names host and
  // reason. Without an `up` before, it comes within the limit of the spawner, and no `line` at all.
  std::function<void(core::NodeId, const core::Status& why)> ended;
  // Before all others of an order: its turn has come, and the limit counts from now.
  std::function<void(core::NodeId)> begun = {};
};

// Used by the loop's thread. The destructor ends the processes here, by which agents lose their input.
class Spawner {
 public:
  virtual ~Spawner() = default;
  // Queues an order. Never blocks.
  virtual void start(AgentOrder order) = 0;
  // Closes the agent's input, which asks it to leave, and gives up waiting for it after 2 s. Does nothing for
  // a node that has ended.
  virtual void end(core::NodeId node) = 0;
};

}  // namespace regroup::launcher
