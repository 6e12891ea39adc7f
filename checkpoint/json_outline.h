// Measures a JSON text before it is parsed, so that nothing is allocated for a text that is
// refused.
#pragma once

#include <cstddef>
#include <string_view>

namespace regroup::checkpoint {

struct JsonOutline {
  std::size_t depth = 0;  // greatest nesting of lists and objects; 1 for [] and {}
  std::size_t keys = 0;   // number of keys in the outermost object, duplicates included
};
// Measures `text`, which need not be JSON, in linear time. (A callback of nlohmann::json's parser
// would take quadratic time: the parser walks a list again after each element that is an object.)
[[nodiscard]] JsonOutline outline_of_json(std::string_view text);

}  // namespace regroup::checkpoint
