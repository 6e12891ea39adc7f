// Names of element types in other formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regroup::checkpoint_tool {

struct TypeNames {
  std::string_view ours;
  std::string_view safetensors;  // "": safetensors lacks the type
  std::string_view numpy;        // "V" and the size if NumPy lacks the type
};

// Return nullptr for a name that is not in the table.
[[nodiscard]] const TypeNames* by_ours(std::string_view name);
[[nodiscard]] const TypeNames* by_safetensors(std::string_view name);
[[nodiscard]] const TypeNames* by_numpy(std::string_view name);

}  // namespace regroup::checkpoint_tool
