// The options of a node's agent, fixed at its start.
#pragma once

#include <cstdint>
#include <string>

#include "proto/world.h"

namespace regroup::membership {

struct AgentOptions {
  proto::NodeId node = 0;
  // Slots of the arena: a few more than members run here at once, since a dead member's slot stays
  // in use while its sums are needed.
  std::uint32_t slots = 1;
  std::uint32_t shards = 1;  // V
  std::uint64_t seed = 0;
  bool any_fingerprint = false;  // --reproducible=off
  // Number of results kept for learners, if the state has at least `learn_above` bytes.
  std::uint32_t kept_results = 0;
  std::uint64_t learn_above = 0;
  std::string endpoints;     // from which other agents fetch a state; "" until this agent listens
  bool checkpoints = false;  // reserve a save area for checkpoints
  std::uint64_t checkpoint_memory = 0;  // its greatest size in bytes; 0: no limit
  std::string resumed_fingerprint;      // of the checkpoint that the job resumes from; "": none
  // Leaf buffers in the device line of a member with gradients on a GPU; 0: members get no lines.
  std::uint32_t leaf_buffers = 0;
};

}  // namespace regroup::membership
