// Makes external text (names of tensors, hosts, jobs) safe to print, since a terminal executes
// control characters. Also prints counts ("2 members").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::base {

// Length in bytes of the first UTF-8 character of `text`, which must not be empty, by RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF. 0: invalid.
[[nodiscard]] std::size_t utf8_length(std::string_view text);
// As utf8_length(), but 0 also for control characters, including C1 (U+0080 to U+009F), and for
// characters that end a line or change the direction of text (U+2028, U+2029, U+202A to U+202E,
// U+2066 to U+2069).
[[nodiscard]] std::size_t printable_length(std::string_view text);
// Escapes `text` to one line: unprintable bytes as \n, \t, or \x1b. Escaping the result again
// changes nothing.
[[nodiscard]] std::string escaped(std::string_view text);
// As escaped(), but keeps line ends: for a message of several lines.
[[nodiscard]] std::string escaped_lines(std::string_view text);
// "1 member", "2 members". `noun`: the singular; adds "es" after a sibilant ("2 launches").
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view noun);

}  // namespace regroup::base
