// Searches the last newline only, backwards, so that the common case scans little.
#include "launcher/process/line_cutter.h"

#include <algorithm>

namespace regroup::process {

std::string_view LineCutter::cut(std::string_view bytes) {
  const std::size_t end = bytes.rfind('\n');
  const std::size_t take = end == std::string_view::npos ? 0 : end + 1;
  rest_.assign(bytes.substr(take));
  return bytes.substr(0, take);
}

void append_prefixed(std::string& out, std::string_view lines, std::string_view prefix) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    const std::size_t line = std::min(end, lines.size());  // without its end
    out.append(prefix).append(lines.substr(0, line)).push_back('\n');
    lines.remove_prefix(std::min(line + 1, lines.size()));
  }
}

}  // namespace regroup::process
