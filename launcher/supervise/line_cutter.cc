// Lines out of a byte stream. Looks for the last line end only, from behind: the common case costs no scan.
#include "launcher/supervise/line_cutter.h"

#include <algorithm>

namespace regroup::launcher {

std::string_view LineCutter::cut(std::string_view bytes) {
  const std::size_t end = bytes.rfind('\n');
  std::size_t take = end == std::string_view::npos ? 0 : end + 1;
  take += (bytes.size() - take) / kLongestLine * kLongestLine;
  rest_.assign(bytes.substr(take));
  return bytes.substr(0, take);
}

void append_prefixed(std::string& out, std::string_view lines, std::string_view prefix) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    const std::size_t line = std::min(end, lines.size());  // without its end
    const std::size_t piece = std::min(line, kLongestLine);
    out.append(prefix).append(lines.substr(0, piece)).push_back('\n');
    lines.remove_prefix(std::min(piece == line ? piece + 1 : piece, lines.size()));
  }
}

}  // namespace regroup::launcher
