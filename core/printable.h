// Text that others chose (names of tensors, hosts, jobs) as it may be shown: a terminal obeys control
// characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup::core {

// Bytes of the first character of `text`, which is not empty, after RFC 3629: no overlong form, no surrogate,
// nothing above U+10FFFF. 0: it is no UTF-8.
[[nodiscard]] std::size_t utf8_length(std::string_view text);
// The same; 0 as well for control characters, those of C1 (U+0080 to U+009F) too, and what ends a line or
// turns the direction of text (U+2028, U+2029, U+202A to U+202E, U+2066 to U+2069).
[[nodiscard]] std::size_t printable_length(std::string_view text);
// One line: what is not printable as \n, \t, or byte by byte as \x1b. Said twice it stays the same.
[[nodiscard]] std::string escaped(std::string_view text);
// The same of each line of a message that may have several.
[[nodiscard]] std::string escaped_lines(std::string_view text);

}  // namespace regroup::core
