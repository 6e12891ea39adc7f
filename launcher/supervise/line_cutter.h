// Cuts the output of one member into whole lines, so that lines of several members never mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace regroup::launcher {

// The beginning of a line is kept in memory up to this size, and a longer one in a file (long_line.h).
inline constexpr std::size_t kLineInMemory = 64 << 10;

// Each call takes the bytes that the last one kept, followed by new ones: read behind rest().
class LineCutter {
 public:
  // The beginning of a line, which is kept.
  [[nodiscard]] const std::string& rest() const { return rest_; }
  // Nothing is kept any more: what was is to be written as it is.
  [[nodiscard]] std::string take_rest() { return std::exchange(rest_, {}); }
  // The front of `bytes` (rest(), then new bytes) that can be written now: whole lines. The rest is kept.
  [[nodiscard]] std::string_view cut(std::string_view bytes);

 private:
  std::string rest_;
};

// Appends `lines` to `out` with `prefix` before each line. A line that does not end gets an end, since lines
// of others follow.
void append_prefixed(std::string& out, std::string_view lines, std::string_view prefix);

}  // namespace regroup::launcher
