// The interface through which checkpoints are written. checkpoint/hdf5 implements it; MemoryStore
// (memory_store.h) is the fake for tests.
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
struct CheckpointPiece {
  std::string name;
  std::string dtype;
  Shape shape;  // of the whole tensor
  Box box;
  std::span<const std::byte> bytes;
};

// The part of the state after a step that writer number `writer` of `writers` has.
struct CheckpointPart {
  Manifest about;    // step, job, seed, shards, model, fingerprint; files and tensors are empty
  std::string uuid;  // identifies this attempt; the same for all its writers
  std::uint32_t writer = 0;
  std::uint32_t writers = 1;
  std::vector<CheckpointPiece> pieces;
};

class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;
  // Writes this writer's part, which is not yet a checkpoint. On ok with several writers, the bytes
  // survive a crash; a single writer has that promise only from commit(). Reads `part` only
  // during the call. Blocks on the device. Does not retry; an error leaves all checkpoints as they
  // were.
  [[nodiscard]] virtual base::Status write(const CheckpointPart& part) = 0;
  // One writer calls this after all have written: turns the parts of `about.step` and `uuid` into a
  // checkpoint, atomically. kUnavailable: a part is missing.
  [[nodiscard]] virtual base::Status commit(const CheckpointPart& part) = 0;
};

}  // namespace regroup::checkpoint
