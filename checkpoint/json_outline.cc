// Counts brackets and colons that stand outside strings.
#include "checkpoint/json_outline.h"

#include <algorithm>

namespace regroup::checkpoint {

JsonOutline outline_of_json(std::string_view text) {
  JsonOutline out;
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;  // the next character ends no string
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') out.depth = std::max(out.depth, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == ':' && depth == 1) ++out.keys;
  }
  return out;
}

}  // namespace regroup::checkpoint
