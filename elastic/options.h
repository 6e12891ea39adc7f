// The only place on the training side that reads the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/status.h"
#include "core/world.h"

namespace regroup::elastic {

// How this process was started. The agent sets it all; without an agent the process is a world of one.
struct Environment {
  std::string agent_socket;         // REGROUP_AGENT; empty: no agent
  core::MemberId member = 0;        // REGROUP_MEMBER
  std::string job;                  // REGROUP_JOB
  std::uint32_t shards = 1;         // REGROUP_SHARDS, alone only; the agent says it otherwise
  std::uint64_t seed = 0;           // REGROUP_SEED, likewise
  std::string threads = "1";        // OMP_NUM_THREADS
  core::Step checkpoint_every = 0;  // REGROUP_CHECKPOINT_EVERY, steps; 0: no checkpoints are made
  std::string resume_from;          // REGROUP_CHECKPOINT_FROM: folder of the checkpoint to go on from
  std::string resume_local;         // REGROUP_CHECKPOINT_LOCAL: where this host may have it, too
};

[[nodiscard]] core::Result<Environment> read_environment();

}  // namespace regroup::elastic
