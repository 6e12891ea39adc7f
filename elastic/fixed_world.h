// How the ranks of a launcher other than regroup meet: the first serves the World of all, the others find it
// by a name that follows from the launch. docs/design/fixed_size_worlds.md.
#pragma once

#include <memory>

#include "core/clock.h"
#include "core/status.h"
#include "elastic/agent_link.h"
#include "elastic/launch.h"
#include "elastic/options.h"
#include "elastic/world_server.h"

namespace regroup::elastic {

// This process's place among the ranks, as long as it lives.
class WorldLease {
 public:
  // kInvalidArgument: this process is in a World already.
  [[nodiscard]] static core::Result<std::unique_ptr<WorldLease>> take();
  ~WorldLease();
  void finished();  // its training is over: the process may join a World again

 private:
  WorldLease() = default;
  bool held_ = true;
};

struct RankConnection {
  AgentLink link;
  std::unique_ptr<WorldServer> server;  // in one rank
  std::unique_ptr<WorldLease> seat;
};

// Waits for `timeout` at most. kInvalidArgument: ranks on several hosts.
[[nodiscard]] core::Result<RankConnection> connect_ranks(const Launch& launch, const Environment& env,
                                                         core::Duration timeout);
// The Join that connect_ranks() is followed by was accepted: a further one of this process is for another
// World.
void count_world();

}  // namespace regroup::elastic
