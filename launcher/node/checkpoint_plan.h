// What the agents of an elastic job are told of its checkpoints. docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/world.h"

namespace regroup::node {

// The checkpoint that a job goes on from.
struct Resume {
  std::string path;  // the same on all hosts
  core::Step step = 0;
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::string fingerprint;  // numeric, of the members that made it
  bool operator==(const Resume&) const = default;
};

struct CheckpointPlan {
  std::string directory;  // absolute, of that name on all hosts; empty: the job makes none
  std::string shared;    // absolute: each is copied there, and `directory` is each host's own; empty: nowhere
  core::Step every = 0;  // steps; 0: it makes none, but goes on from one
  std::uint32_t keep_last = 3;
  std::uint64_t keep_every = 0;  // steps; 0: no others
  std::uint64_t memory = 0;      // most bytes that a snapshot may take on a host; 0: no limit
  std::string job;               // that has the directory's LOCK
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::optional<Resume> resume;
  bool operator==(const CheckpointPlan&) const = default;
};

}  // namespace regroup::node
