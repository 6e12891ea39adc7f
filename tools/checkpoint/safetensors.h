// The header of a safetensors file: its length (8 bytes), then JSON that names tensors and their
// bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint_tool {

// For all tensors of `manifest`, whose bytes follow in that order. kInvalidArgument: a type or a
// name that the format does not have.
[[nodiscard]] base::Result<std::string> safetensors_header(const checkpoint::Manifest& manifest);
// The tensors of a whole file in memory, in the order of their bytes (of those without any, of the
// header), which point into `file`. `name` is for messages. kInvalidArgument: not such a file, or
// one that the format forbids (a tensor listed twice, tensors that overlap, bytes that belong to
// none, __metadata__ that is no object of texts), or a tensor that no checkpoint can hold.
[[nodiscard]] base::Result<std::vector<checkpoint::SnapshotPiece>> read_safetensors(
    std::span<const std::byte> file, const std::string& name);

}  // namespace regroup::checkpoint_tool
