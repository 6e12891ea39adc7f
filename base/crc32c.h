// CRC32C (Castagnoli), by the fastest method of this processor. RFC 3720 appendix B.4 has test
// vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup::base {

// The CRC of `bytes`, continuing from `crc` (0 to begin). Any thread.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
// The same without special instructions: the fallback of crc32c(), and the reference of its tests.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<const std::byte> bytes,
                                            std::uint32_t crc = 0);

// One implementation of crc32c().
struct Crc32cKernel {
  const char* name;
  bool (*usable)();  // true if this processor has the instructions
  std::uint32_t (*crc)(std::span<const std::byte> bytes, std::uint32_t crc);
};
// Best first; the last one is usable everywhere.
[[nodiscard]] std::span<const Crc32cKernel> all_crc32c_kernels();

}  // namespace regroup::base
