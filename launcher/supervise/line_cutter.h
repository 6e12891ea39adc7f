// Cuts the output of one member into whole lines, so that lines of several members never mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regroup::launcher {

inline constexpr std::size_t kLongestLine = 64 << 10;  // longer ones are cut in pieces

class LineCutter {
 public:
  // `prefix` is put before each line; before each piece of a long one, too.
  explicit LineCutter(std::string prefix = "") : prefix_(std::move(prefix)) {}

  // Takes bytes; returns the whole lines that are complete now, newlines included. Keeps less than
  // kLongestLine bytes.
  [[nodiscard]] std::string feed(std::string_view bytes);
  // The member is gone: the rest. With a prefix a newline is added, since other members' lines follow.
  [[nodiscard]] std::string finish();

 private:
  std::string prefix_;
  std::string rest_;
};

}  // namespace regroup::launcher
