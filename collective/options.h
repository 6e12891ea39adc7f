// The options by which all backends open a communicator of a generation.
#pragma once

#include <vector>

#include "base/status.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::collective {

struct CommunicatorOptions {
  shmem::ChannelKind channel = shmem::ChannelKind::kSteps;
  // Distinguishes successive communicators of one generation on one channel; strictly increasing.
  proto::Position instance;
  std::vector<int> ranks;  // ranks of the World that take part, ascending; empty: all
};

// options.ranks, or all ranks of `world` if it is empty. kInvalidArgument if a rank is not in
// `world` or the ranks are not ascending.
[[nodiscard]] base::Result<std::vector<int>> ranks_of(const proto::World& world,
                                                      const CommunicatorOptions& options);

}  // namespace regroup::collective
