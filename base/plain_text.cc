// One pass; a file without such leftovers comes out as it went in.
#include "base/plain_text.h"

#include <fmt/format.h>

namespace regroup::base {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr char kEndOfText = 0x1A;

}  // namespace

Result<std::string> plain_text(std::string_view text, std::string_view path) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return invalid_argument(
        fmt::format("{}: it is UTF-16, expected UTF-8: save it as UTF-8", path));
  while (text.ends_with(kEndOfText)) text.remove_suffix(1);
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return invalid_argument(
        fmt::format("{}: byte {} is NUL, expected text in UTF-8: save it as UTF-8", path, at + 1));
  }
  std::string out;
  out.reserve(text.size());
  bool at_start = true;  // of a line
  while (!text.empty()) {
    if (at_start && text.starts_with(kMark)) {
      text.remove_prefix(kMark.size());
      continue;
    }
    const bool both = text.starts_with("\r\n");
    at_start = both || text[0] == '\n' || text[0] == '\r';
    out += at_start ? '\n' : text[0];
    text.remove_prefix(both ? 2 : 1);
  }
  return out;
}

}  // namespace regroup::base
