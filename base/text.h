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

// The part up to the next `mark`; `rest` is what follows it. False: there is none left. What ends
// in a mark has no empty part behind it.
inline bool next_part(std::string_view& rest, char mark, std::string_view& part) {
  if (rest.empty()) return false;
  const std::size_t end = rest.find(mark);
  part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return true;
}

// The next word between blanks; false: there is none.
inline bool next_blank_word(std::string_view& rest, std::string_view& word) {
  const std::size_t first = rest.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return false;
  rest.remove_prefix(first);
  const std::size_t end = rest.find_first_of(kBlanks);
  word = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  return true;
}

// All of `text` as a number without a sign.
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

// For a message: control characters become '?', and what is longer than 60 bytes is cut.
[[nodiscard]] inline std::string printable_word(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > 60 ? out + "..." : out;
}

}  // namespace regroup::base
