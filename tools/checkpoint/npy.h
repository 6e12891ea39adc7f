// Reads .npy files, each one array of NumPy (numpy.lib.format, versions 1.0 to 3.0), and writes
// their headers.
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
  checkpoint::CheckpointPiece piece;
  // The bytes of `piece` in our order if the file's order differs; otherwise null.
  std::unique_ptr<std::byte[]> converted;
};

// Reads a whole .npy file as the tensor `name`, little-endian and in C's order. The tensor's bytes
// point into `file`, or into `converted` if the file has them in another order. `dtype` is the type
// that the archive gives for an array whose type NumPy lacks; otherwise empty. kInvalidArgument:
// not a .npy file, or one that NumPy refuses, or a type that no checkpoint has.
[[nodiscard]] base::Result<NpyArray> read_npy(const std::string& name,
                                              std::span<const std::byte> file,
                                              std::string_view dtype = {});
// Returns the header to write before the bytes of a tensor of `dtype`. Sets *unnamed if NumPy lacks
// the type and will read elements as plain bytes: the archive must then give the type.
[[nodiscard]] std::string npy_header(std::string_view dtype, const checkpoint::Shape& shape,
                                     bool* unnamed);

}  // namespace regroup::checkpoint_tool
