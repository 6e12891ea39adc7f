// Character by character: printed text must be UTF-8, or some terminals read its bytes as control
// characters.
#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace regroup::base {
namespace {

struct Character {
  std::size_t bytes = 0;  // 0: no UTF-8
  std::uint32_t code = 0;
};

Character first_of(std::string_view text) {
  static constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};  // by length
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xc0 ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                                           : 4;
  if (length == 0 || lead > 0xf4 || text.size() < length) return {};
  std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80) return {};
    code = code << 6 | (next & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLowest[length] || surrogate || code > 0x10ffff ? Character()
                                                                : Character{length, code};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::size_t utf8_length(std::string_view text) { return first_of(text).bytes; }

std::size_t printable_length(std::string_view text) {
  const Character first = first_of(text);
  return is_control(first.code) ? 0 : first.bytes;
}

namespace {

std::string escape(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = kept.find(text[0]) == kept.npos ? printable_length(text) : 1;
    if (bytes > 0) {
      out += text.substr(0, bytes);
      text.remove_prefix(bytes);
      continue;
    }
    const char c = text[0];
    if (c == '\n' || c == '\t' || c == '\r') {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) { return escape(text, ""); }

std::string escaped_lines(std::string_view text) { return escape(text, "\n\t"); }

std::string counted(std::uint64_t count, std::string_view noun) {
  const bool sibilant =
      noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") || noun.ends_with("sh");
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : sibilant ? "es" : "s");
}

}  // namespace regroup::base
