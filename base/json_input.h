// JSON that another process wrote: bounds that hold before it is walked, and before its numbers are
// converted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace regroup::base {

// Lists and objects within each other: copying and printing go down into them by recursion.
inline constexpr std::size_t kMostJsonDepth = 64;

// Whether `text`, which need not be JSON, is no deeper.
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

// The value of `text`; a discarded one if it is no JSON, or deeper than kMostJsonDepth.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text) {
  if (!bounded_json_depth(text)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Whether every number in `json`, which is not too deep, is a whole one, but for members of objects
// with a name in `real`. A number with a fraction or an exponent that is out of a type's range must
// not be converted to it.
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
