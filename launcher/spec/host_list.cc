// A range is counted before it is written out.
#include "launcher/spec/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>

#include "base/text.h"

namespace regroup::spec {
namespace {

using base::invalid_argument;
using base::Result;
using Names = std::vector<std::string>;

constexpr std::size_t kMostDigits = 12;
constexpr std::ptrdiff_t kMostBrackets = 8;  // in one name

base::Status too_many(std::string_view word, std::size_t most) {
  return invalid_argument(
      fmt::format("'{}': more than {} names", base::printable_word(word), most));
}

base::Status bad(std::string_view word, std::string_view why) {
  return invalid_argument(fmt::format("'{}': {}", base::printable_word(word), why));
}

struct Range {
  std::uint64_t from = 0, to = 0;
  std::size_t width = 0;
};

Result<Range> read_range(std::string_view piece) {
  const std::size_t dash = piece.find('-');
  const std::string_view first = piece.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : piece.substr(dash + 1);
  Range range{0, 0, first.size()};
  if (first.size() > kMostDigits || last.size() > kMostDigits || !base::whole(first, range.from) ||
      !base::whole(last, range.to))
    return bad(piece, "expected a number or a range of numbers");
  if (range.to < range.from) return bad(piece, "expected an ascending range");
  return range;
}

void append_number(std::string& out, std::uint64_t number, std::size_t width) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const auto size = static_cast<std::size_t>(end - digits.data());
  if (size < width) out.append(width - size, '0');
  out.append(digits.data(), size);
}

// "08-10,12"
Result<Names> bracketed(std::string_view word, std::string_view text, std::size_t most,
                        std::size_t limit) {
  Names out;
  for (std::string_view rest = text, piece; base::next_part(rest, ',', piece);) {
    REGROUP_ASSIGN_OR_RETURN(const auto range, read_range(piece));
    if (range.to - range.from >= most - std::min(most, out.size())) return too_many(word, limit);
    for (std::uint64_t i = range.from; i <= range.to; ++i)
      append_number(out.emplace_back(), i, range.width);
  }
  if (out.empty()) return bad(text, "empty bracket");
  return out;
}

// A name with brackets: text, numbers, text, ... The first text is before the first bracket.
struct Pattern {
  std::vector<std::string_view> texts;
  std::vector<Names> numbers;
};

Result<Pattern> read_pattern(std::string_view word, std::size_t most, std::size_t limit) {
  Pattern out;
  std::size_t names = 1;
  for (std::string_view rest = word;;) {
    const std::size_t open = rest.find('['), close = rest.find(']');
    out.texts.push_back(rest.substr(0, open));
    if (open == std::string_view::npos && close == std::string_view::npos) return out;
    if (open == std::string_view::npos || close == std::string_view::npos || close < open)
      return bad(word, "unbalanced bracket");
    REGROUP_ASSIGN_OR_RETURN(auto numbers,
                             bracketed(word, rest.substr(open + 1, close - open - 1),
                                       std::max<std::size_t>(1, most / names), limit));
    names *= numbers.size();
    if (names > most) return too_many(word, limit);
    out.numbers.push_back(std::move(numbers));
    rest = rest.substr(close + 1);
  }
}

// In the order of `scontrol show hostnames`: the last bracket counts fastest, then the first, the
// second and so on. `most`: what words before leave of `limit`.
Result<Names> expand_word(std::string_view word, std::size_t most, std::size_t limit) {
  REGROUP_ASSIGN_OR_RETURN(const auto pattern, read_pattern(word, most, limit));
  Names out{std::string(pattern.texts[0])};
  for (std::size_t i = 0; i < pattern.numbers.size(); ++i) {
    const bool last = i + 1 == pattern.numbers.size();
    const Names& numbers = pattern.numbers[i];
    Names longer;
    longer.reserve(out.size() * numbers.size());
    for (std::size_t j = 0; j < out.size() * numbers.size(); ++j) {
      const std::string& head = out[last ? j / numbers.size() : j % out.size()];
      const std::string& number = numbers[last ? j % numbers.size() : j / out.size()];
      longer.push_back(fmt::format("{}{}{}", head, number, pattern.texts[i + 1]));
    }
    out = std::move(longer);
  }
  return out;
}

// Up to the next comma outside of brackets.
Result<std::string_view> next_word(std::string_view& rest) {
  bool inside = false;
  std::size_t i = 0;
  for (; i < rest.size() && (inside || rest[i] != ','); ++i) {
    if (rest[i] != '[' && rest[i] != ']') continue;
    if (inside == (rest[i] == '[')) return bad(rest, "unbalanced bracket");
    inside = !inside;
  }
  if (inside) return bad(rest, "unbalanced bracket");
  const std::string_view word = base::trimmed_word(rest.substr(0, i));
  rest = i < rest.size() ? rest.substr(i + 1) : std::string_view();
  return word;
}

}  // namespace

Result<Names> expand_host_list(std::string_view text, std::size_t most) {
  Names out;
  std::string_view rest = base::trimmed_word(text);
  if (rest.empty()) return out;
  if (rest.back() == ',') return bad(text, "expected a host name between commas");
  while (!rest.empty()) {
    REGROUP_ASSIGN_OR_RETURN(const auto word, next_word(rest));
    if (word.empty()) return bad(text, "expected a host name between commas");
    if (std::ranges::count(word, '[') > kMostBrackets) return bad(word, "too many brackets");
    if (out.size() >= most) return too_many(text, most);
    REGROUP_ASSIGN_OR_RETURN(auto names, expand_word(word, most - out.size(), most));
    out.insert(out.end(), std::make_move_iterator(names.begin()),
               std::make_move_iterator(names.end()));
  }
  return out;
}

Result<std::vector<int>> expand_numbers(std::string_view text, std::size_t most) {
  std::vector<int> out;
  for (std::string_view rest = base::trimmed_word(text), piece;
       base::next_part(rest, ',', piece);) {
    REGROUP_ASSIGN_OR_RETURN(const auto range, read_range(base::trimmed_word(piece)));
    if (range.to > INT32_MAX || range.to - range.from >= most - std::min(most, out.size()))
      return too_many(text, most);
    for (std::uint64_t i = range.from; i <= range.to; ++i) out.push_back(static_cast<int>(i));
  }
  return out;
}

}  // namespace regroup::spec
