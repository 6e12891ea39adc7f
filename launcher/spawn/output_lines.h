// Cuts what a process writes into lines. It may be anything: a program of another host wrote it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup::launcher {

class OutputLines {
 public:
  // A line of this size comes in pieces, since one without an end must not be kept whole.
  static constexpr std::size_t kLongestPiece = 64 << 10;

  // Lines that end in `bytes`, without their ends.
  [[nodiscard]] std::vector<std::string> add(std::string_view bytes);
  // What is left of a line that has not ended: "" if there is none.
  [[nodiscard]] std::string take_rest() { return std::exchange(rest_, {}); }

 private:
  std::string rest_;
};

}  // namespace regroup::launcher
