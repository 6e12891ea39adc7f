// Names of element types as they stand in a manifest, and their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace regroup::checkpoint {

struct Dtype {
  std::string_view name;
  std::uint32_t bytes;  // of an element
};
// All there are.
[[nodiscard]] std::span<const Dtype> dtypes();

// Bytes of an element of type `name` ("float32", "bfloat16", "float8_e4m3fn", ... as PyTorch calls
// them); nothing if there is no such type.
[[nodiscard]] std::optional<std::uint32_t> size_of_dtype(std::string_view name);

}  // namespace regroup::checkpoint
