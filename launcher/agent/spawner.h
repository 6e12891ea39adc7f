// The interface that starts agents on hosts. Each method (ssh, fork, a fake) has a factory, and all
// deliver the same events. docs/design/hosts.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::agent {

struct AgentOrder {
  proto::NodeId node = 0;              // one order per node
  std::string host;                    // as the user wrote it; for messages
  std::string program;                 // an absolute path on that host
  std::vector<std::string> arguments;  // after the program's name; any bytes but 0
  std::string wdir;                    // "": wherever it starts
  std::string user = {};               // login name; "": as ssh has it
  std::string preferred = {};          // runs in place of `program` where it exists
  std::string address = {};  // the host's name for the command that reaches it; "": `host`
};

// Called from the loop, never from within a Spawner's function.
struct SpawnEvents {
  // The host is about to run the program, with the secret and nothing else on its standard input.
  // The input stays open until end() or the end of the launcher.
  std::function<void(proto::NodeId)> up;
  // A line of the agent's standard output or error, without control characters.
  std::function<void(proto::NodeId, const std::string& line)> line;
  // Called once for each order, as the last event: ok if the agent exited with 0, else a sentence
  // that names host and reason. If `up` was not called before, this comes within the spawner's
  // limit, and without any `line`.
  std::function<void(proto::NodeId, const base::Status& why)> ended;
  // Called first for an order: its turn has come, and its limit starts.
  std::function<void(proto::NodeId)> begun = {};
};

// Used by the loop's thread. The destructor ends the local processes, and so the agents' standard
// input.
class Spawner {
 public:
  virtual ~Spawner() = default;
  // Queues an order. Never blocks.
  virtual void start(AgentOrder order) = 0;
  // Closes the agent's standard input, which asks it to exit, and stops waiting for it after 2 s.
  // No effect for a node that has ended.
  virtual void end(proto::NodeId node) = 0;
};

}  // namespace regroup::agent
