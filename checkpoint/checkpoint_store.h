// The door through which checkpoints are written. checkpoint/hdf5 is behind it; MemoryStore
// (memory_store.h) is the fake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/box.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint {

// A piece of a tensor in memory: the elements of `box`, row by row.
struct SnapshotPiece {
  std::string name;
  std::string dtype;
  Shape shape;  // of the whole tensor
  Box box;
  std::span<const std::byte> bytes;
};

// What one of `writers` writers has of the state after `step`.
struct Snapshot {
  Manifest about;    // step, job, seed, shards, model, fingerprint; files and tensors are empty
  std::string uuid;  // of this attempt, the same for all its writers
  std::uint32_t writer = 0;
  std::uint32_t writers = 1;
  std::vector<SnapshotPiece> pieces;
};

class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;
  // Writes this writer's part. When it returns ok the bytes of a writer among several are where no
  // crash reaches them, but not yet a checkpoint; a writer alone has that promise from commit()
  // only. `snapshot` is read, by this call only. Blocks on the device. An error (nothing is tried
  // again) leaves all checkpoints as they were.
  [[nodiscard]] virtual base::Status write(const Snapshot& snapshot) = 0;
  // One of the writers, after all have written: makes the parts of `about.step` and `uuid` a
  // checkpoint, whole or not at all. kUnavailable: a part is missing.
  [[nodiscard]] virtual base::Status commit(const Snapshot& snapshot) = 0;
};

}  // namespace regroup::checkpoint
