// The shape of a JSON text, seen before it is parsed: nothing is allocated for a text that is
// refused.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup::checkpoint {

struct JsonOutline {
  std::size_t depth = 0;  // of the innermost list or object; 1: [], {}
  std::size_t keys = 0;   // of the outermost object; more than it has members: one is listed twice
};
// Of `text`, which need not be JSON. Time: linear, where a callback of nlohmann::json's parser
// makes it look at all elements of a list again after each that is an object.
[[nodiscard]] JsonOutline outline_of_json(std::string_view text);

}  // namespace regroup::checkpoint
