// Connects the ranks that another launcher (mpirun, srun, torchrun ...) started: the first one
// serves their World, the others find it by a socket name derived from the launch.
// docs/design/fixed_size_worlds.md.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/agent_link.h"
#include "elastic/detected_launch.h"
#include "elastic/fixed_world_server.h"
#include "elastic/options.h"

namespace regroup::elastic {

// A process is in one World at a time: holds that right until finished() or destruction.
class SingleWorldGuard {
 public:
  // kInvalidArgument: this process is in a World already.
  [[nodiscard]] static base::Result<std::unique_ptr<SingleWorldGuard>> take();
  ~SingleWorldGuard();
  void finished();  // training is over: the process may join another World

 private:
  SingleWorldGuard() = default;
  bool held_ = true;
};

struct RankConnection {
  AgentLink link;
  std::unique_ptr<FixedWorldServer> server;  // not null in the rank that serves the World
  std::unique_ptr<SingleWorldGuard> guard;
};

// Connects to the rank that serves the World, or becomes it. Blocks for at most `timeout`.
// kInvalidArgument: the ranks are on several hosts.
[[nodiscard]] base::Result<RankConnection> connect_ranks(const DetectedLaunch& launch,
                                                         const Environment& env,
                                                         base::Duration timeout);
// Call when the Join after connect_ranks() was accepted: the next connect_ranks() of this process
// is for another World.
void count_world();

}  // namespace regroup::elastic
