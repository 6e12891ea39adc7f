// Which communicator of a generation is opened: the options that all backends have in common.
#pragma once

#include <vector>

#include "base/status.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::collective {

struct CommunicatorOptions {
  shmem::ChannelKind channel = shmem::ChannelKind::kSteps;
  // Distinguishes successive communicators of one generation on one channel. Strictly grows.
  proto::Position instance;
  std::vector<int> ranks;  // of the World that take part, ascending; empty: all
};

// The ranks of `options`, or all of `world`. kInvalidArgument unless they are as described.
[[nodiscard]] base::Result<std::vector<int>> ranks_of(const proto::World& world,
                                                      const CommunicatorOptions& options);

}  // namespace regroup::collective
