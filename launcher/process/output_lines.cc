// Scans only new bytes: a line may arrive byte by byte.
#include "launcher/process/output_lines.h"

namespace regroup::process {

std::vector<std::string> OutputLines::add(std::string_view bytes) {
  std::vector<std::string> lines;
  for (std::size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos;
       bytes.remove_prefix(end + 1)) {
    lines.push_back(take_rest().append(bytes.substr(0, end)));
  }
  rest_ += bytes;
  if (rest_.size() >= kLongestPiece) lines.push_back(take_rest());
  return lines;
}

}  // namespace regroup::process
