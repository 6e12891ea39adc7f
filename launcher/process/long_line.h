// A line that is too long for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::process {

// Keeps the bytes in an unnamed file in $TMPDIR or /tmp, which vanishes however the process ends.
class LongLine {
 public:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 30;  // bytes

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const { return size_; }  // bytes
  // An error names the folder or the size limit; what was kept before stays.
  [[nodiscard]] base::Status append(std::string_view bytes);
  // Reads from byte `at` on; returns the number of bytes read. 0: the file cannot be read.
  [[nodiscard]] std::size_t read(std::uint64_t at, std::span<char> space) const;
  void clear();

 private:
  base::Fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace regroup::process
