// Reads files of numpy.savez(): an archive with a .npy file for each array.
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
  std::vector<checkpoint::CheckpointPiece> pieces;
  // The bytes of the arrays that the file has in another order.
  std::vector<std::unique_ptr<std::byte[]>> converted;
};

// Reads the arrays of a whole file. An array's name is that of its archive member without ".npy";
// its bytes point into `file` or `converted`. Messages call the file `name`. kInvalidArgument: not
// such a file, or an array that no checkpoint can hold (its type is unknown, its name is not UTF-8
// or not unique); kDataLoss: the CRC-32 of a member is wrong.
[[nodiscard]] base::Result<Arrays> read_npz(std::span<const std::byte> file,
                                            const std::string& name);

}  // namespace regroup::checkpoint_tool
