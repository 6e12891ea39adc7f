// The inner loops of reductions, compiled once for each instruction set from one source
// (kernels.inc) and chosen at run time. All give equal bits: the same operations, each rounded
// once, nothing fused, and one NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regroup/operation.h"

namespace regroup::collective::reduce {

// kBaseline: what every processor of its kind has, SSE2 on x86-64 and NEON on ARM64. The others:
// x86-64 only.
enum class Simd : std::uint8_t { kBaseline, kAvx2, kAvx512 };

// Type in which values are reduced: 16-bit floats in float32.
enum class Accumulator : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64, kInt8, kInt16, kUint8 };
inline constexpr std::size_t kAccumulators = 7;
inline constexpr std::size_t kOps = 7;

struct Kernels {
  // to = left (op) right; `to` may be either. Memory of any alignment.
  using Combine = void (*)(void* to, const void* left, const void* right, std::size_t count);
  // The last combination and finish() in one pass, for all types but 16-bit floats. `past`: use
  // stores that bypass the cache where the alignment of `to` allows it; the caller publishes.
  using Close = void (*)(void* to, const void* left, const void* right, std::size_t count,
                         std::uint32_t divisor, bool past);
  // In place: divides by `divisor` unless it is 1, and makes every NaN the same.
  using Finish = void (*)(void* values, std::size_t count, std::uint32_t divisor);
  // Between a 16-bit float and float32; narrow() rounds to nearest even. No overlap.
  using Widen = void (*)(float* to, const void* from, std::size_t count);
  using Narrow = void (*)(void* to, const float* from, std::size_t count);
  // memcpy() of data that another core has just written, by loads and stores: `rep movsb`, which C
  // libraries use for large sizes, leaves such lines in the other core's cache
  // (docs/design/bounce_buffers.md).
  using Copy = void (*)(void* to, const void* from, std::size_t bytes);

  Combine combine[kAccumulators][kOps];  // null: bit operations on floats. kAvg adds.
  Close close[kAccumulators][kOps];      // likewise
  Finish finish[kAccumulators];
  Widen widen[2];  // float16, bfloat16
  Narrow narrow[2];
  Copy copy;
};

// The best instruction set of this processor.
[[nodiscard]] Simd best_simd();
// `level` must not be above best_simd().
[[nodiscard]] const Kernels& kernels_of(Simd level);

extern const Kernels kKernelsBaseline;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;

}  // namespace regroup::collective::reduce
