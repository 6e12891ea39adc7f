// Computes checksums of files in the page cache without copying them, by mmap(). If a mapped page
// cannot be read, the kernel raises SIGBUS; SigbusGuard turns that into a result. For Regroup's own
// programs only: a member's signal handlers belong to its user, so members read() files.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace regroup::checkpoint {

// Handles SIGBUS while it exists; at most one may exist in a process. Passes signals that do not
// concern its mappings to the previous handler.
class SigbusGuard {
 public:
  SigbusGuard();
  ~SigbusGuard();
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;

  // Calls `read`, which reads `mapping`, once. True if all of the mapping could be read; else
  // `read` has read zeros from some byte on, because zero pages have replaced the mapping.
  // `mapping` must begin at a page. Any thread; must not be called from `read`.
  [[nodiscard]] bool try_read(std::span<const std::byte> mapping,
                              const std::function<void()>& read) const;

 private:
  struct sigaction previous_ {};
};

// The CRC32C of bytes [offset, offset + bytes) of the open file. Empty if they are not all in the
// page cache, are too few, or cannot be mapped or read (a read() then returns the error). Any
// thread.
[[nodiscard]] std::optional<std::uint32_t> sum_mapped(const SigbusGuard& guard, int fd,
                                                      std::uint64_t offset, std::uint64_t bytes);

}  // namespace regroup::checkpoint
