// Lines out of a byte stream. A piece of an overlong line ends where the limit is reached; it gets a newline
// only if a prefix is put before the next piece, since otherwise the reader's bytes would differ.
#include "launcher/supervise/line_cutter.h"

#include <utility>

namespace regroup::launcher {

std::string LineCutter::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLongestLine - rest_.size();
    const bool whole = end != std::string_view::npos && end < room;
    if (!whole && bytes.size() < room) {
      rest_.append(bytes);
      break;
    }
    const std::size_t take = whole ? end + 1 : room;
    out.append(prefix_).append(rest_).append(bytes.substr(0, take));
    if (!whole && !prefix_.empty()) out.push_back('\n');
    rest_.clear();
    bytes.remove_prefix(take);
  }
  return out;
}

std::string LineCutter::finish() {
  if (rest_.empty()) return {};
  std::string out = prefix_ + std::exchange(rest_, {});
  if (!prefix_.empty()) out.push_back('\n');
  return out;
}

}  // namespace regroup::launcher
