// The names of element types in a manifest, and their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace regroup::checkpoint {

struct Dtype {
  std::string_view name;
  std::uint32_t bytes;  // per element
};
// All element types.
[[nodiscard]] std::span<const Dtype> dtypes();

// The size in bytes of an element of type `name` (PyTorch's names: "float32", "bfloat16",
// "float8_e4m3fn" ...); empty if there is no such type.
[[nodiscard]] std::optional<std::uint32_t> size_of_dtype(std::string_view name);

}  // namespace regroup::checkpoint
