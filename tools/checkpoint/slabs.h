// Reads a tensor in parts, so that it may be larger than memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint_tool {

// The largest part, unless a single row of the first dimension is larger.
inline constexpr std::uint64_t kSlabBytes = 64 << 20;

// Calls take(box, bytes) for one part after the other, in the order of the tensor's bytes.
[[nodiscard]] base::Status for_each_slab(
    const checkpoint::Checkpoint& from, std::size_t tensor,
    const std::function<base::Status(const checkpoint::Box&, std::span<const std::byte>)>& take);

}  // namespace regroup::checkpoint_tool
