// The part of a job's parameter server that another host than the launcher's has: memory for
// tables, a gateway, and servers. Its messages, and its interface for the agent of that host.
// docs/design/ps_hosts.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace regroup::agent {

class Agent;

// --- controller -> agent
// Starts the store. Once, before any member. Answered by StoreStarted.
struct StartStore {
  std::uint32_t store = 0;         // its number
  std::uint32_t stores = 1;        // of the job
  std::string address;             // of this host, for members on the others
  std::uint64_t seed = 0;          // of initial rows
  std::uint64_t bytes = 0;         // of its tables
  std::uint32_t servers = 1;       // of the job, at first and at least
  std::uint32_t most_servers = 1;  // of the job
  std::chrono::milliseconds hang_timeout{};
  // Of checkpoints, which all hosts with a store must see, and who holds its lock; empty: there are
  // none.
  std::string directory;
  std::string owner;
  std::string resume;  // path of the checkpoint whose tables it loads; "": none
};
// Asks for its status, sets the number of servers, has it write its part of a checkpoint, or tells
// it which stores are lost. Answered by StoreReply.
struct QueryStore {
  std::uint32_t query = 0;    // its number
  std::uint32_t servers = 0;  // of the job; 0: not to be set
  std::string save;           // what `regroup-persist save-tables` reads; "": nothing is saved
  // The stores that are lost, all so far: its clients go on without them. If it is one of them, it
  // ends. Empty: nothing is told.
  std::vector<std::uint32_t> lost;
};

// --- agent -> controller
struct StoreStarted {
  base::Status status;
  std::string address;        // of its gateway
  std::string socket;         // where members of its host get its memory
  std::uint64_t version = 0;  // of its tables
};
struct StoreReply {
  std::uint32_t query = 0;
  base::Status status;
  // The status as JSON, a sentence, or, of a part that is on the disk, the version of the tables
  // that it has at least.
  std::string text;
};
// The store cannot serve any more; the sentence says why. No UserMessage: those of --quiet are
// lost.
struct StoreFailed {
  std::string why;
};

// Used by the loop's thread. The destructor ends its servers.
class Store {
 public:
  struct Events {
    std::function<void(const StoreStarted&)> started;    // once
    std::function<void(const std::string& text)> said;   // for the user
    std::function<void(const std::string& why)> failed;  // the job must end
    std::function<bool()> over;                          // no member needs a server any more
  };
  using Answer = std::function<void(const base::Result<std::string>&)>;
  virtual ~Store() = default;
  // Calls `then` once, at once or, of a part of a checkpoint, later, unless the store is destroyed.
  virtual void answer(const QueryStore& query, Answer then) = 0;
};
// `host`: the name of this host.
using StoreFactory = std::function<std::unique_ptr<Store>(
    Agent& agent, const std::string& host, const StartStore& order, Store::Events events)>;

}  // namespace regroup::agent
