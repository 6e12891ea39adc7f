// Names of element types as they stand in a manifest, and their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace regroup::checkpoint {

// Bytes of an element of type `name` ("float32", "bfloat16", "float8_e4m3fn", ... as PyTorch calls them);
// nothing if there is no such type.
[[nodiscard]] std::optional<std::uint32_t> size_of_dtype(std::string_view name);

}  // namespace regroup::checkpoint
