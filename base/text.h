// Small parsers for untrusted text: no copies, no exceptions.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace regroup::base {

inline constexpr std::string_view kBlanks = " \t\r\f\v\n";

[[nodiscard]] inline std::string_view trimmed_word(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Splits off the text before the next `mark`: `part` receives it, `rest` keeps what follows the
// mark. False if `rest` is empty; so "a,b," has two parts, not a third, empty one.
inline bool next_part(std::string_view& rest, char mark, std::string_view& part) {
  if (rest.empty()) return false;
  const std::size_t end = rest.find(mark);
  part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return true;
}

// Splits the next word between blanks off `rest`. False if `rest` has no more words.
inline bool next_blank_word(std::string_view& rest, std::string_view& word) {
  const std::size_t first = rest.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return false;
  rest.remove_prefix(first);
  const std::size_t end = rest.find_first_of(kBlanks);
  word = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  return true;
}

// Reads all of `text` as an unsigned number. False, with `out` unchanged, if it is none or does not
// fit.
template <class T>
[[nodiscard]] bool whole(std::string_view text, T& out) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text.front() == '-' || error != std::errc() ||
      end != text.data() + text.size())
    return false;
  out = number;
  return true;
}

// `text` for a message: control characters become '?', and text beyond 60 bytes becomes "...".
[[nodiscard]] inline std::string printable_word(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > 60 ? out + "..." : out;
}

}  // namespace regroup::base
