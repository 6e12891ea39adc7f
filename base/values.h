// Parsers for the values of options: numbers, times, sizes, words, lists.
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

// Reads all of `text` as an unsigned number. False, with `out` unchanged, if it is none or does not
// fit.
template <class T>
[[nodiscard]] bool read_number(std::string_view text, T& out) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-'))
    return false;
  out = number;
  return true;
}

// Each parses `text`, the value of option `name`, into `out`, or returns bad_value().
[[nodiscard]] Status parse_count(std::string_view name, std::string_view text, std::uint32_t least,
                                 std::uint32_t& out);
[[nodiscard]] Status parse_count(std::string_view name, std::string_view text, std::uint64_t& out);
[[nodiscard]] Status parse_seconds(std::string_view name, std::string_view text, Duration& out);
[[nodiscard]] Status parse_cpus(std::string_view name, std::string_view text, double& out);
// A number of bytes, with an optional K, M, G or T (powers of 1024; "KB" and "KiB" mean K).
[[nodiscard]] Status parse_bytes(std::string_view name, std::string_view text, std::uint64_t& out);
// `out` becomes true if `text` is the word `on`, false if it is the word `off`.
[[nodiscard]] Status parse_word(std::string_view name, std::string_view text, std::string_view on,
                                std::string_view off, bool& out);
// Signals by number or name, with or without SIG, separated by commas; "none": an empty list.
[[nodiscard]] Status parse_signals(std::string_view name, std::string_view text,
                                   std::vector<int>& out);

// Splits `text` at each character of `separators`; returns at least one part.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separators);
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);

// Splits one line into words as a shell does, with quotes, backslashes and # comments, but without
// expansions. kInvalidArgument: a quote is not closed.
[[nodiscard]] Result<std::vector<std::string>> shell_words(std::string_view line);
// Splits one line of an app file into words, as Open MPI and hydra do. A quote quotes only at the
// start of a word or after '=', if the next quote ends the word; a backslash escapes only a quote,
// # and itself, and within a word a blank. A # at the start of a word begins a comment.
[[nodiscard]] std::vector<std::string> file_words(std::string_view line);

}  // namespace regroup::base
