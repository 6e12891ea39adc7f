// Reads and writes the header of a safetensors file: its length (8 bytes), then JSON that lists the
// tensors and the ranges of their bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint_tool {

// Returns the header for all tensors of `manifest`, whose bytes follow in that order.
// kInvalidArgument: a type or a name that the format lacks.
[[nodiscard]] base::Result<std::string> safetensors_header(const checkpoint::Manifest& manifest);
// Reads the tensors of a whole file; their bytes point into `file`. The result is ordered by
// offset, empty tensors by their place in the header. Messages call the file `name`.
// kInvalidArgument: not such a file, or one that the format forbids (a tensor listed twice, tensors
// that overlap, bytes of no tensor, a __metadata__ that does not map strings to strings), or a
// tensor that no checkpoint can hold.
[[nodiscard]] base::Result<std::vector<checkpoint::CheckpointPiece>> read_safetensors(
    std::span<const std::byte> file, const std::string& name);

}  // namespace regroup::checkpoint_tool
