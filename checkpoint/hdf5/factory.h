// Checkpoints in HDF5 files.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint_store.h"
#include "checkpoint/hdf5/image_writer.h"

namespace regroup::checkpoint::hdf5 {

// Returns a store that writes checkpoints into the existing `directory`. The process that commits
// or cleans up must hold the DirectoryLock of `directory`.
[[nodiscard]] std::unique_ptr<CheckpointStore> make_store(std::string directory,
                                                          WriteOptions options = {});

}  // namespace regroup::checkpoint::hdf5
