// The checkpoint settings that the agents of an elastic job get. docs/guide/checkpoint.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/world.h"

namespace regroup::spec {

// The checkpoint from which a job resumes.
struct Resume {
  std::string path;  // the same on all hosts
  proto::Step step = 0;
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::string fingerprint;  // numeric fingerprint of the members that wrote it
  bool operator==(const Resume&) const = default;
};

struct CheckpointPlan {
  std::string directory;  // absolute, the same on all hosts; "": the job writes no checkpoints
  // Absolute. If not "", `directory` is local to each host, and checkpoints are copied to `shared`.
  std::string shared;
  proto::Step every = 0;  // steps; 0: writes none, only resumes
  std::uint32_t keep_last = 3;
  std::uint64_t keep_every = 0;  // steps; 0: keeps no others
  std::uint64_t memory = 0;      // limit in bytes for the save on a host; 0: none
  std::string job;               // holds the directory's LOCK
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::optional<Resume> resume;
  bool operator==(const CheckpointPlan&) const = default;
};

}  // namespace regroup::spec
