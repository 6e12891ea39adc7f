// CRC32C by hardware where available, else by a 256-entry table. One CRC instruction waits for the
// previous one, so long spans are split into three interleaved streams; since a CRC is linear,
// three CRCs are combined by the effect of the zeros that follow each. Where a carry-less
// multiplication takes 64 bytes at once, spans are folded instead: the value so far, times a power
// of x, is added to the data that many bits later (V. Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009).
#include "base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace regroup::base {
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
#define REGROUP_CRC [[gnu::target("sse4.2")]]
REGROUP_CRC inline std::uint64_t add_word(std::uint64_t c, std::uint64_t word) {
  return _mm_crc32_u64(c, word);
}
REGROUP_CRC inline std::uint32_t add_byte(std::uint32_t c, std::byte b) {
  return _mm_crc32_u8(c, static_cast<unsigned char>(b));
}
#elif defined(__aarch64__)
#define REGROUP_CRC [[gnu::target("+crc")]]
REGROUP_CRC inline std::uint64_t add_word(std::uint64_t c, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(c), word);
}
REGROUP_CRC inline std::uint32_t add_byte(std::uint32_t c, std::byte b) {
  return __crc32cb(c, static_cast<unsigned char>(b));
}
#endif

#ifdef REGROUP_CRC
constexpr std::size_t kStream = 1024;  // bytes

// [k][v]: the CRC that results from appending kStream zero bytes to data with the CRC v << 8 * k.
constexpr std::array<Table, 4> make_after_zeros() {
  std::array<std::uint32_t, 32> of_bit{};
  for (unsigned bit = 0; bit < 32; ++bit) {
    std::uint32_t c = 1U << bit;
    for (std::size_t i = 0; i < kStream; ++i) c = kTable[c & 0xff] ^ (c >> 8);
    of_bit[bit] = c;
  }
  std::array<Table, 4> tables{};
  for (unsigned k = 0; k < 4; ++k) {
    for (unsigned v = 0; v < 256; ++v) {
      for (unsigned bit = 0; bit < 8; ++bit)
        tables[k][v] ^= (v >> bit & 1) != 0 ? of_bit[8 * k + bit] : 0;
    }
  }
  return tables;
}

std::uint32_t after_zeros(std::uint64_t c) {
  static constexpr auto kTables = make_after_zeros();
  return kTables[0][c & 0xff] ^ kTables[1][c >> 8 & 0xff] ^ kTables[2][c >> 16 & 0xff] ^
         kTables[3][c >> 24 & 0xff];
}

std::uint64_t word_at(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

REGROUP_CRC std::uint32_t update_streams(std::span<const std::byte> bytes, std::uint32_t crc) {
  std::uint64_t c = crc;
  for (; bytes.size() >= 3 * kStream; bytes = bytes.subspan(3 * kStream)) {
    std::uint64_t second = 0, third = 0;
    for (const std::byte* at = bytes.data(); at < bytes.data() + kStream; at += sizeof c) {
      c = add_word(c, word_at(at));
      second = add_word(second, word_at(at + kStream));
      third = add_word(third, word_at(at + 2 * kStream));
    }
    c = after_zeros(after_zeros(c) ^ second) ^ third;
  }
  for (; bytes.size() >= sizeof c; bytes = bytes.subspan(sizeof c))
    c = add_word(c, word_at(bytes.data()));
  auto tail = static_cast<std::uint32_t>(c);
  for (const std::byte b : bytes) tail = add_byte(tail, b);
  return tail;
}

std::uint32_t crc_streams(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~update_streams(bytes, ~crc);
}
#endif

#if defined(__x86_64__)
constexpr std::size_t kLine = 64, kFold = 4 * kLine;

// The factor (a power of x, modulo the CRC polynomial) that moves half a register to the data
// `bits` later. Since the bits are in reverse order, the product would be 33 bits off: hence
// bits - 32 multiplications by x, and one shift.
constexpr long long power_of_x(unsigned bits) {
  std::uint64_t c = 0x80000000U;
  for (unsigned i = 0; i < bits - 32; ++i) c = (c & 1) != 0 ? 0x82f63b78U ^ (c >> 1) : c >> 1;
  c *= 2;
  return static_cast<long long>(c);
}

#define REGROUP_FOLDS [[gnu::target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2")]]

bool has_folds() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

// power_of_x() for both halves of each of the four 128-bit parts.
template <unsigned Bits>
REGROUP_FOLDS inline __m512i later() {
  constexpr long long kHigh = power_of_x(Bits), kLow = power_of_x(Bits + 64);
  return _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
}

REGROUP_FOLDS inline __m512i fold(__m512i sum, __m512i later, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, later, 0x00),
                                   _mm512_clmulepi64_epi128(sum, later, 0x11), next, kXorOfThree);
}

// Folds the leading multiple of kFold bytes of `bytes`, which holds at least kFold bytes.
REGROUP_FOLDS std::uint32_t update_folds(std::span<const std::byte> bytes, std::uint32_t c) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size() / kFold * kFold;
  __m512i one = _mm512_loadu_si512(at), two = _mm512_loadu_si512(at + kLine);
  __m512i three = _mm512_loadu_si512(at + 2 * kLine), four = _mm512_loadu_si512(at + 3 * kLine);
  one = _mm512_xor_si512(one, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(c))));
  const __m512i by_fold = later<8 * kFold>(), by_line = later<8 * kLine>();
  for (at += kFold; at != end; at += kFold) {
    one = fold(one, by_fold, _mm512_loadu_si512(at));
    two = fold(two, by_fold, _mm512_loadu_si512(at + kLine));
    three = fold(three, by_fold, _mm512_loadu_si512(at + 2 * kLine));
    four = fold(four, by_fold, _mm512_loadu_si512(at + 3 * kLine));
  }
  four = fold(fold(fold(one, by_line, two), by_line, three), by_line, four);
  std::array<std::byte, kLine> last;
  _mm512_storeu_si512(last.data(), four);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kLine; i += sizeof sum)
    sum = _mm_crc32_u64(sum, word_at(last.data() + i));
  return static_cast<std::uint32_t>(sum);
}
#undef REGROUP_FOLDS

std::uint32_t crc_folds(std::span<const std::byte> bytes, std::uint32_t crc) {
  const std::size_t whole = bytes.size() / kFold * kFold;
  if (whole == 0) return crc_streams(bytes, crc);
  return crc_streams(bytes.subspan(whole), ~update_folds(bytes, ~crc));
}
#endif

constexpr std::array kAll {
#if defined(__x86_64__)
  Crc32cKernel{"folds", has_folds, crc_folds},
      Crc32cKernel{"sse42", [] { return __builtin_cpu_supports("sse4.2") != 0; }, crc_streams},
#elif defined(__aarch64__)
  Crc32cKernel{"armv8", [] { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }, crc_streams},
#endif
      Crc32cKernel{"portable", [] { return true; }, crc32c_portable},
};

const Crc32cKernel& best() {
  static const Crc32cKernel* const kFirst =
      &*std::ranges::find_if(kAll, [](const auto& one) { return one.usable(); });
  return *kFirst;
}

}  // namespace

std::span<const Crc32cKernel> all_crc32c_kernels() { return kAll; }

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  return best().crc(bytes, crc);
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~update_portable(bytes, ~crc);
}

}  // namespace regroup::base
