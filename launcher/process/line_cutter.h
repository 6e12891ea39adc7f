// Splits the output of one member into whole lines, so that lines of several members never mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace regroup::process {

// The beginning of a line is kept in memory up to this size, and a longer one in a file
// (long_line.h).
inline constexpr std::size_t kLineInMemory = 64 << 10;

// Each call takes the bytes that the last call kept, followed by new ones.
class LineCutter {
 public:
  // The incomplete line that is kept.
  [[nodiscard]] const std::string& rest() const { return rest_; }
  // Returns the incomplete line to be written as it is, and keeps nothing.
  [[nodiscard]] std::string take_rest() { return std::exchange(rest_, {}); }
  // Returns the whole lines at the front of `bytes` (rest() and new bytes) and keeps the rest.
  [[nodiscard]] std::string_view cut(std::string_view bytes);

 private:
  std::string rest_;
};

// Appends `lines` to `out` with `prefix` before each. An incomplete line gets a newline, since
// lines of others follow.
void append_prefixed(std::string& out, std::string_view lines, std::string_view prefix);

}  // namespace regroup::process
