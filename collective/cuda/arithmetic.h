// Arithmetic and memory of the device kernels, for two compilers: nvcc makes instructions of the
// GPU, g++ the same results on a CPU. Each operation is rounded once, to nearest even; denormals
// are kept; a multiplication is never fused with an addition. The bits are those of
// collective/reduce/kernels.h, so a sum does not depend on where it was computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/reduce/half_bits.h"

#ifdef __CUDACC__
#define REGROUP_DEVICE __host__ __device__ __forceinline__
#define REGROUP_UNROLL _Pragma("unroll")  // the loop that follows, wholly
#define REGROUP_UNSET                     // registers that are set before they are read
#else
#define REGROUP_DEVICE inline
#define REGROUP_UNROLL
#define REGROUP_UNSET = {}  // g++ cannot see that
#endif

namespace regroup::collective::cuda {

// The GPU's own NaN is 0x7fffffff, an x86 processor's 0xffc00000. Results have this one.
REGROUP_DEVICE float canonical(float value) {
  return value == value ? value : __builtin_bit_cast(float, 0x7fc00000U);
}
REGROUP_DEVICE double canonical(double value) {
  return value == value ? value : __builtin_bit_cast(double, 0x7ff8000000000000ULL);
}

#ifdef __CUDA_ARCH__
REGROUP_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
REGROUP_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
REGROUP_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
REGROUP_DEVICE double multiply(double a, double b) { return __dmul_rn(a, b); }
REGROUP_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
REGROUP_DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
#else
REGROUP_DEVICE float add(float a, float b) { return a + b; }
REGROUP_DEVICE double add(double a, double b) { return a + b; }
REGROUP_DEVICE float multiply(float a, float b) { return a * b; }
REGROUP_DEVICE double multiply(double a, double b) { return a * b; }
REGROUP_DEVICE float divide(float a, float b) { return a / b; }
REGROUP_DEVICE double divide(double a, double b) { return a / b; }
#endif

// `kBytes` bytes that one thread moves by one instruction: 2, 4, 8 or 16, aligned to `kBytes`.
template <int kBytes>
struct Chunk {
  std::uint32_t words[kBytes < 4 ? 1 : kBytes / 4];  // of 2 bytes the lower half of the word
};

// Loads or stores a chunk past the L1 cache, since no thread uses what another one does.
template <int kBytes>
REGROUP_DEVICE Chunk<kBytes> load(const void* from) {
  Chunk<kBytes> chunk;
#ifdef __CUDA_ARCH__
  if constexpr (kBytes == 16) {
    const uint4 v = __ldcg(static_cast<const uint4*>(from));
    chunk = {{v.x, v.y, v.z, v.w}};
  } else if constexpr (kBytes == 8) {
    const uint2 v = __ldcg(static_cast<const uint2*>(from));
    chunk = {{v.x, v.y}};
  } else if constexpr (kBytes == 4) {
    chunk = {{__ldcg(static_cast<const unsigned*>(from))}};
  } else {
    chunk = {{__ldcg(static_cast<const unsigned short*>(from))}};
  }
#else
  chunk.words[0] = 0;
  __builtin_memcpy(chunk.words, from, kBytes);
#endif
  return chunk;
}
template <int kBytes>
REGROUP_DEVICE void store(void* to, const Chunk<kBytes>& chunk) {
#ifdef __CUDA_ARCH__
  const auto& w = chunk.words;
  if constexpr (kBytes == 16) {
    __stcg(static_cast<uint4*>(to), make_uint4(w[0], w[1], w[2], w[3]));
  } else if constexpr (kBytes == 8) {
    __stcg(static_cast<uint2*>(to), make_uint2(w[0], w[1]));
  } else if constexpr (kBytes == 4) {
    __stcg(static_cast<unsigned*>(to), w[0]);
  } else {
    __stcg(static_cast<unsigned short*>(to), static_cast<unsigned short>(w[0]));
  }
#else
  __builtin_memcpy(to, chunk.words, kBytes);
#endif
}

// Types of elements. `Sum` is the type in which they are added; get() widens element `i` of a
// chunk, put() rounds `value` once and makes it element `i`; elements are put in order.
struct Float32 {
  using Sum = float;
  static constexpr int kBytes = 4;

  static REGROUP_DEVICE Sum get(const std::uint32_t* words, int i) {
    return __builtin_bit_cast(float, words[i]);
  }
  static REGROUP_DEVICE void put(std::uint32_t* words, int i, Sum value) {
    words[i] = __builtin_bit_cast(std::uint32_t, canonical(value));
  }
};

struct Float64 {
  using Sum = double;
  static constexpr int kBytes = 8;

  static REGROUP_DEVICE Sum get(const std::uint32_t* words, int i) {
    const std::uint64_t high = words[2 * i + 1];
    return __builtin_bit_cast(double, high << 32 | words[2 * i]);
  }
  static REGROUP_DEVICE void put(std::uint32_t* words, int i, Sum value) {
    const auto bits = __builtin_bit_cast(std::uint64_t, canonical(value));
    words[2 * i] = static_cast<std::uint32_t>(bits);
    words[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
  }
};

// What the 16-bit types have in common; `Bits` converts one value.
template <class Bits>
struct Float16Bits {
  using Sum = float;
  static constexpr int kBytes = 2;

  static REGROUP_DEVICE Sum get(const std::uint32_t* words, int i) {
    return Bits::widened(i % 2 == 0 ? words[i / 2] & 0xffff : words[i / 2] >> 16);
  }
  static REGROUP_DEVICE void put(std::uint32_t* words, int i, Sum value) {
    const std::uint32_t bits = value == value ? Bits::narrowed(value) : Bits::kNan;
    words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
  }
};

struct Float16Value {
  static constexpr std::uint32_t kNan = 0x7e00;

  static REGROUP_DEVICE float widened(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
    return value;
#else
    return reduce::widened_half(bits);
#endif
  }
  static REGROUP_DEVICE std::uint32_t narrowed(float value) {
#ifdef __CUDA_ARCH__
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return reduce::narrowed_half(value);
#endif
  }
};

struct Bfloat16Value {
  static constexpr std::uint32_t kNan = 0x7fc0;

  static REGROUP_DEVICE float widened(std::uint32_t bits) {
    return __builtin_bit_cast(float, bits << 16);
  }
  static REGROUP_DEVICE std::uint32_t narrowed(float value) {
#ifdef __CUDA_ARCH__
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return reduce::narrowed_bfloat(value);
#endif
  }
};
using Float16 = Float16Bits<Float16Value>;
using Bfloat16 = Float16Bits<Bfloat16Value>;

}  // namespace regroup::collective::cuda
