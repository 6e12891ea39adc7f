// The bytes of an input as choices: what it says is made of them, and so is mostly well-formed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace regroup::fuzz {

class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  // One of 0 .. n - 1; 0 where the input is at its end.
  std::uint32_t below(std::uint32_t n) {
    if (bytes_.empty()) return 0;
    const std::uint32_t value = bytes_.front() % n;
    bytes_ = bytes_.subspan(1);
    return value;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    const auto taken = take(sizeof value);
    std::memcpy(&value, taken.data(), taken.size());
    return value;
  }
  // As many as the next two bytes say, or as there are.
  std::span<const std::uint8_t> some() {
    const std::size_t low = below(256);
    return take(low + 256 * below(256));
  }

 private:
  std::span<const std::uint8_t> take(std::size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

  std::span<const std::uint8_t> bytes_;
};

}  // namespace regroup::fuzz
