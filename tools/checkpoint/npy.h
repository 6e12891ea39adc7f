// One array of NumPy: a .npy file (numpy.lib.format, versions 1.0 to 3.0).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"

namespace regroup::checkpoint_tool {

struct NpyArray {
  checkpoint::SnapshotPiece piece;
  // What `piece` points into, if the file has it in another order.
  std::unique_ptr<std::byte[]> converted;
};

// A whole .npy file in memory, as the tensor `name`, little-endian and in C's order: its bytes
// point into `file` unless it is in another order. `dtype` is the type that the archive says it
// has, which NumPy has no name for; empty: none. kInvalidArgument: not such a file, or one that
// NumPy does not read, or of a type that no tensor of a checkpoint has.
[[nodiscard]] base::Result<NpyArray> read_npy(const std::string& name,
                                              std::span<const std::byte> file,
                                              std::string_view dtype = {});
// The header before the bytes of a tensor of `dtype`. *unnamed: NumPy has no name for its type, and
// reads elements as so many bytes: the archive has to say what they are.
[[nodiscard]] std::string npy_header(std::string_view dtype, const checkpoint::Shape& shape,
                                     bool* unnamed);

}  // namespace regroup::checkpoint_tool
