// Checkpoints in HDF5 files.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint_store.h"
#include "checkpoint/hdf5/image_writer.h"

namespace regroup::checkpoint::hdf5 {

// Writes checkpoints into `directory`, which is there. Whoever commits, or cleans up, holds its
// DirectoryLock.
[[nodiscard]] std::unique_ptr<CheckpointStore> make_store(std::string directory,
                                                          WriteOptions options = {});

}  // namespace regroup::checkpoint::hdf5
