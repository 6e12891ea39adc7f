// Reads JSON that another process wrote, which may be hostile: bounds its depth before it is
// parsed, and checks its numbers before they are converted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace regroup::base {

// Greatest nesting of lists and objects; copying and printing JSON recurse once per level.
inline constexpr std::size_t kMostJsonDepth = 64;

// True if `text`, which need not be JSON, nests at most kMostJsonDepth levels.
[[nodiscard]] inline bool bounded_json_depth(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      if (++depth > kMostJsonDepth) return false;
    } else if (!quoted && (c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return true;
}

// The value of `text`; is_discarded() if it is not JSON or is deeper than kMostJsonDepth.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text) {
  if (!bounded_json_depth(text)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// True if every number in `json` is an integer, except the values of keys listed in `real`.
// Converting a number with a fraction or exponent to an integer type that cannot hold it is
// undefined. `json` comes from parse_json().
[[nodiscard]] inline bool whole_but(const nlohmann::json& json,
                                    std::span<const std::string_view> real) {
  if (!json.is_structured()) return !json.is_number_float();
  for (auto each = json.begin(); each != json.end(); ++each) {
    const bool may_be_real =
        json.is_object() && each->is_number() && std::ranges::find(real, each.key()) != real.end();
    if (!may_be_real && !whole_but(*each, real)) return false;
  }
  return true;
}

}  // namespace regroup::base
