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
class RankSeat {
 public:
  // kInvalidArgument: this process is in a World already.
  [[nodiscard]] static core::Result<std::unique_ptr<RankSeat>> take();
  ~RankSeat();
  void finished();  // its training is over: the process may join a World again

 private:
  RankSeat() = default;
  bool held_ = true;
};

struct Meeting {
  AgentLink link;
  std::unique_ptr<WorldServer> server;  // in one rank
  std::unique_ptr<RankSeat> seat;
};

// Waits for `patience` at most. kInvalidArgument: ranks on several hosts.
[[nodiscard]] core::Result<Meeting> meet_ranks(const Launch& launch, const Environment& env,
                                               core::Duration patience);
// The Join that meet_ranks() is followed by was accepted: a further one of this process is for another World.
void met_ranks();

}  // namespace regroup::elastic
