// Sums of what is in the page cache without a copy, for programs whose signals are their own: what
// a mapped file does not give is SIGBUS, which is made an answer here. A member's signals are its
// user's: it reads.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace regroup::checkpoint {

// Takes SIGBUS as long as it lives, one in a process at a time; what is none of its own goes where
// it went before.
class BusGuard {
 public:
  BusGuard();
  ~BusGuard();
  BusGuard(const BusGuard&) = delete;
  BusGuard& operator=(const BusGuard&) = delete;

  // Whether `look`, which is called once, found all of `mapping` there; if not, it has seen zeros
  // from some byte on, and the mapping stays so. It begins on a page: whole pages are put in its
  // place. Any thread, not from within `look`.
  [[nodiscard]] bool sees(std::span<const std::byte> mapping,
                          const std::function<void()>& look) const;

 private:
  struct sigaction before_ {};
};

// CRC32C of bytes [offset, offset + bytes) of the open file. Nothing: they are not all in the page
// cache, are too few to be worth it, or cannot be mapped or read, for which reading them gives the
// reason. Any thread.
[[nodiscard]] std::optional<std::uint32_t> sum_mapped(const BusGuard& guard, int fd,
                                                      std::uint64_t offset, std::uint64_t bytes);

}  // namespace regroup::checkpoint
