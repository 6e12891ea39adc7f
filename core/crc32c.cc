// Hardware CRC32C where there is one, else a 256-entry table. One CRC instruction waits for the one before,
// so long spans go as three streams side by side; since a CRC is linear, three CRCs are joined by what zeros
// behind them would make of them.
#include "core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace regroup::core {
namespace {

using Table = std::array<std::uint32_t, 256>;

constexpr Table make_table() {
  Table table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? 0x82f63b78U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}

constexpr Table kTable = make_table();

std::uint32_t update_portable(std::span<const std::byte> bytes, std::uint32_t c) {
  for (const std::byte b : bytes) c = kTable[(c ^ static_cast<std::uint32_t>(b)) & 0xff] ^ (c >> 8);
  return c;
}

#if defined(__x86_64__)
constexpr std::size_t kStream = 1024;  // bytes

// [k][v]: what kStream zero bytes make of the CRC v << 8 * k.
constexpr std::array<Table, 4> make_behind_zeros() {
  std::array<std::uint32_t, 32> of_bit{};
  for (unsigned bit = 0; bit < 32; ++bit) {
    std::uint32_t c = 1U << bit;
    for (std::size_t i = 0; i < kStream; ++i) c = kTable[c & 0xff] ^ (c >> 8);
    of_bit[bit] = c;
  }
  std::array<Table, 4> tables{};
  for (unsigned k = 0; k < 4; ++k) {
    for (unsigned v = 0; v < 256; ++v) {
      for (unsigned bit = 0; bit < 8; ++bit) tables[k][v] ^= (v >> bit & 1) != 0 ? of_bit[8 * k + bit] : 0;
    }
  }
  return tables;
}

std::uint32_t behind_zeros(std::uint64_t c) {
  static constexpr auto kTables = make_behind_zeros();
  return kTables[0][c & 0xff] ^ kTables[1][c >> 8 & 0xff] ^ kTables[2][c >> 16 & 0xff] ^
         kTables[3][c >> 24 & 0xff];
}

std::uint64_t word_at(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t crc) {
  std::uint64_t c = crc;
  for (; bytes.size() >= 3 * kStream; bytes = bytes.subspan(3 * kStream)) {
    std::uint64_t second = 0, third = 0;
    for (const std::byte* at = bytes.data(); at < bytes.data() + kStream; at += sizeof c) {
      c = _mm_crc32_u64(c, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + kStream));
      third = _mm_crc32_u64(third, word_at(at + 2 * kStream));
    }
    c = behind_zeros(behind_zeros(c) ^ second) ^ third;
  }
  for (; bytes.size() >= sizeof c; bytes = bytes.subspan(sizeof c))
    c = _mm_crc32_u64(c, word_at(bytes.data()));
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
