// Files of numpy.savez(): an archive with a .npy file for each array.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"

namespace regroup::checkpoint_tool {

struct Arrays {
  std::vector<checkpoint::SnapshotPiece> pieces;
  // Of those that the file has in another order.
  std::vector<std::unique_ptr<std::byte[]>> converted;
};

// The arrays of a whole file in memory, each with the name of its member of the archive without
// ".npy". Their bytes point into `file` or `converted`. `name` is for messages. kInvalidArgument:
// not such a file, or an array that no tensor of a checkpoint can be (its type is not known, a name
// that is not UTF-8, a name that two have); kDataLoss: a member does not have its CRC-32.
[[nodiscard]] base::Result<Arrays> read_npz(std::span<const std::byte> file,
                                            const std::string& name);

}  // namespace regroup::checkpoint_tool
