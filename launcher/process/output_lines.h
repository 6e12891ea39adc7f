// Splits the output of a process into lines. The output is untrusted: a program on another host
// wrote it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup::process {

class OutputLines {
 public:
  // A line longer than this is split, since a line without an end must not use unbounded memory.
  static constexpr std::size_t kLongestPiece = 64 << 10;

  // The lines that end in `bytes`, without their newlines.
  [[nodiscard]] std::vector<std::string> add(std::string_view bytes);
  // The incomplete line; "" if there is none.
  [[nodiscard]] std::string take_rest() { return std::exchange(rest_, {}); }

 private:
  std::string rest_;
};

}  // namespace regroup::process
