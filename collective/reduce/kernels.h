// The inner loops of reductions, compiled once for each instruction set from one source
// (kernels.inc) and chosen at run time. All give equal bits: the same operations, each rounded
// once, nothing fused, and one NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regroup/operation.h"

namespace regroup::collective::reduce {

// kBaseline: SSE2 on x86-64, NEON on ARM64, which every such processor has. The others are for
// x86-64 only.
enum class Simd : std::uint8_t { kBaseline, kAvx2, kAvx512 };

// Type in which values are reduced; 16-bit floats are reduced in kFloat32.
enum class Accumulator : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64, kInt8, kInt16, kUint8 };
inline constexpr std::size_t kAccumulators = 7;
inline constexpr std::size_t kOps = 7;

struct Kernels {
  // to = left (op) right; `to` may equal `left` or `right`. Memory of any alignment.
  using Combine = void (*)(void* to, const void* left, const void* right, std::size_t count);
  // The last combination and Finish in one pass, for all types but 16-bit floats. `past`: store
  // past the cache where the alignment of `to` allows it; the caller must then publish() the
  // result.
  using Close = void (*)(void* to, const void* left, const void* right, std::size_t count,
                         std::uint32_t divisor, bool past);
  // In place: divides by `divisor` unless it is 1, and replaces every NaN by the same NaN.
  using Finish = void (*)(void* values, std::size_t count, std::uint32_t divisor);
  // Between a 16-bit float and float32; narrow() rounds to nearest even. No overlap.
  using Widen = void (*)(float* to, const void* from, std::size_t count);
  using Narrow = void (*)(void* to, const float* from, std::size_t count);
  // to = values * factor, which is rounded to the type first. No overlap. `past` as in Close.
  using Scale = void (*)(void* to, const void* values, std::size_t count, double factor, bool past);
  // memcpy() of data that another core has just written, by loads and stores: `rep movsb`, which C
  // libraries use for large sizes, leaves such lines in the other core's cache
  // (docs/design/bounce_buffers.md).
  using Copy = void (*)(void* to, const void* from, std::size_t bytes);

  // Null for bit operations on floats. Op::kAvg adds; the divisor of Close or Finish divides.
  Combine combine[kAccumulators][kOps];
  Close close[kAccumulators][kOps];
  Finish finish[kAccumulators];
  Widen widen[2];  // float16, bfloat16
  Narrow narrow[2];
  Scale scale[2];  // float32, float64
  Copy copy;
};

// The best instruction set of this processor.
[[nodiscard]] Simd best_simd();
// The kernels of instruction set `level`, which must not be above best_simd().
[[nodiscard]] const Kernels& kernels_of(Simd level);

extern const Kernels kKernelsBaseline;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;

}  // namespace regroup::collective::reduce
