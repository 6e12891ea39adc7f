// Files of numpy.savez(): an archive with a .npy file for each array.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "core/status.h"

namespace regroup::checkpoint_tool {

// The arrays of a whole file in memory, each with the name of its member of the archive without ".npy". Their
// bytes point into `file`. `name` is for messages. kInvalidArgument: not such a file, or an array that no
// tensor of a checkpoint can be (its type is not known, Fortran's order, a name that is not UTF-8, a name
// that two have); kDataLoss: a member does not have its CRC-32.
[[nodiscard]] core::Result<std::vector<checkpoint::SnapshotPiece>> read_npz(std::span<const std::byte> file,
                                                                            const std::string& name);
// One array: a whole .npy file in memory. kInvalidArgument as above. `name` becomes the tensor's.
[[nodiscard]] core::Result<checkpoint::SnapshotPiece> read_npy(const std::string& name,
                                                               std::span<const std::byte> file);

}  // namespace regroup::checkpoint_tool
