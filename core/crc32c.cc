// Hardware CRC32C where there is one, else a 256-entry table.
#include "core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace regroup::core {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0x82f63b78U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

std::uint32_t update_portable(std::span<const std::byte> bytes, std::uint32_t c) {
  static constexpr auto kTable = make_table();
  for (const std::byte b : bytes) c = kTable[(c ^ static_cast<std::uint32_t>(b)) & 0xff] ^ (c >> 8);
  return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t crc) {
  std::uint64_t c = crc;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    c = _mm_crc32_u64(c, word);
    bytes = bytes.subspan(8);
  }
  auto tail = static_cast<std::uint32_t>(c);
  for (const std::byte b : bytes) tail = _mm_crc32_u8(tail, static_cast<unsigned char>(b));
  return tail;
}
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~update_sse42(bytes, ~crc);
#endif
  return crc32c_portable(bytes, crc);
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~update_portable(bytes, ~crc);
}

}  // namespace regroup::core
