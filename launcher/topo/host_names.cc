// A range is counted before it is written out.
#include "launcher/topo/host_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/topo/text_input.h"

namespace regroup::launcher {
namespace {

using Names = std::vector<std::string>;

// "08-10,12"
std::optional<Names> expand_numbers(std::string_view text, std::size_t most) {
  constexpr std::int64_t kMostDigits = 12;
  Names out;
  for (const std::string_view piece : split(text, ',')) {
    const std::size_t dash = piece.find('-');
    const std::string_view first = piece.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : piece.substr(dash + 1);
    const auto from = whole_number(first, 0, INT64_MAX), to = whole_number(last, 0, INT64_MAX);
    if (!from || !to || *to < *from || first.size() > kMostDigits || last.size() > kMostDigits) return {};
    if (static_cast<std::uint64_t>(*to - *from) >= most - std::min(most, out.size())) return {};
    for (std::int64_t i = *from; i <= *to; ++i) out.push_back(fmt::format("{:0{}}", i, first.size()));
  }
  return out;
}

// One name with any number of brackets.
std::optional<Names> expand_one(std::string_view text, std::size_t most) {
  const std::size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos && close == std::string_view::npos) return Names{std::string(text)};
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  const auto numbers = expand_numbers(text.substr(open + 1, close - open - 1), most);
  if (!numbers || numbers->empty()) return {};
  const auto rest = expand_one(text.substr(close + 1), most / numbers->size());
  if (!rest) return {};
  Names out;
  for (const std::string& number : *numbers) {
    for (const std::string& tail : *rest)
      out.push_back(fmt::format("{}{}{}", text.substr(0, open), number, tail));
  }
  return out.size() <= most ? std::optional(std::move(out)) : std::nullopt;
}

// At commas outside of brackets.
std::optional<std::vector<std::string_view>> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      out.push_back(trimmed(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) return {};
      inside = !inside;
    }
  }
  return inside ? std::nullopt : std::optional(std::move(out));
}

}  // namespace

std::optional<Names> expand_hosts(std::string_view text, std::size_t most) {
  const auto words = words_of(text);
  if (!words || std::count(text.begin(), text.end(), '[') > 8 * static_cast<std::ptrdiff_t>(words->size()))
    return {};
  Names out;
  for (const std::string_view word : *words) {
    if (word.empty() || out.size() >= most) return {};
    auto names = expand_one(word, most - out.size());
    if (!names) return {};
    out.insert(out.end(), std::make_move_iterator(names->begin()), std::make_move_iterator(names->end()));
  }
  return out;
}

}  // namespace regroup::launcher
