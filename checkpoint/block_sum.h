// Reads a block of a file and computes its CRC32C, in strides small enough to stay in the cache
// between the read and the checksum.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/crc32c.h"
#include "base/status.h"
#include "checkpoint/file_io.h"

namespace regroup::checkpoint {

struct ReadSizes {
  std::size_t stride;              // bytes per read
  std::uint64_t bytes_per_thread;  // starting one more thread for fewer bytes does not pay
};
// For reading into the caller's memory, which occupies a part of the cache.
inline constexpr ReadSizes kReadSizes = {256 << 10, 16 << 20};
// For reading repeatedly into one buffer on a huge page.
inline constexpr ReadSizes kVerifySizes = {1 << 20, 64 << 20};

// The CRC32C of bytes [begin, end) of an open file. `buffer_for(offset, bytes)` returns the memory
// that receives `bytes` bytes from `offset` of the file.
template <class BufferFor>
[[nodiscard]] base::Result<std::uint32_t> sum_block(int fd, const std::string& path,
                                                    std::uint64_t begin, std::uint64_t end,
                                                    std::size_t stride,
                                                    const BufferFor& buffer_for) {
  std::uint32_t crc = 0;
  for (std::uint64_t at = begin; at < end; at += stride) {
    const std::span<std::byte> part = buffer_for(at, std::min<std::uint64_t>(stride, end - at));
    REGROUP_RETURN_IF_ERROR(read_at(fd, at, part, path));
    crc = base::crc32c(part, crc);
  }
  return crc;
}

// The error message for bytes [begin, end) of `path`, whose CRC32C `crc` differs from `written`.
[[nodiscard]] inline std::string wrong_sum(const std::string& path, std::uint64_t begin,
                                           std::uint64_t end, std::uint32_t crc,
                                           std::uint32_t written) {
  return fmt::format("{}: bytes {} to {} have CRC32C {:08x}, expected {:08x}", path, begin, end,
                     crc, written);
}

}  // namespace regroup::checkpoint
