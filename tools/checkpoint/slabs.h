// Tensors part by part, so that one larger than memory can be read.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint_tool {

// Or one row of the first dimension, if that is more.
inline constexpr std::uint64_t kSlabBytes = 64 << 20;

// Calls take(box, bytes) for the rows of a tensor in order: one after the other they are its bytes.
[[nodiscard]] base::Status for_each_slab(
    const checkpoint::Checkpoint& from, std::size_t tensor,
    const std::function<base::Status(const checkpoint::Box&, std::span<const std::byte>)>& take);

}  // namespace regroup::checkpoint_tool
