// Values of options as text: numbers, times, sizes, words, lists.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::base {

// "option NAME VALUE: WANTED", kInvalidArgument.
[[nodiscard]] Status bad_value(std::string_view name, std::string_view value,
                               std::string_view wanted);

// The whole of `text` as a number without sign; false if it is none or does not fit.
template <class T>
[[nodiscard]] bool read_number(std::string_view text, T& out) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-'))
    return false;
  out = number;
  return true;
}

// The value of option `name`. They refuse with bad_value().
[[nodiscard]] Status parse_count(std::string_view name, std::string_view text, std::uint32_t least,
                                 std::uint32_t& out);
[[nodiscard]] Status parse_count(std::string_view name, std::string_view text, std::uint64_t& out);
[[nodiscard]] Status parse_seconds(std::string_view name, std::string_view text, Duration& out);
[[nodiscard]] Status parse_cpus(std::string_view name, std::string_view text, double& out);
// Bytes, or with K, M, G or T (of 1024 each; an i or B behind it changes nothing).
[[nodiscard]] Status parse_bytes(std::string_view name, std::string_view text, std::uint64_t& out);
// `out` becomes whether `text` is `on`; it must be `on` or `off`.
[[nodiscard]] Status parse_word(std::string_view name, std::string_view text, std::string_view on,
                                std::string_view off, bool& out);
// Signals by number or name, with or without SIG, separated by commas; "none": an empty list.
[[nodiscard]] Status parse_signals(std::string_view name, std::string_view text,
                                   std::vector<int>& out);

// The parts of `text` between characters of `separators`; one part at least.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separators);
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);

// The words of one line as a shell would see them: quotes and backslashes, nothing else; a # that
// begins a word ends the line. kInvalidArgument: a quote is not closed.
[[nodiscard]] Result<std::vector<std::string>> shell_words(std::string_view line);
// The words of one line of an app file. A quote counts at the beginning of a word or after '=', if
// the next one ends the word; a backslash counts before a quote, # and itself, and within a word
// before a blank. All others are characters, as under Open MPI and hydra. A # that begins a word
// ends the line.
[[nodiscard]] std::vector<std::string> file_words(std::string_view line);

}  // namespace regroup::base
