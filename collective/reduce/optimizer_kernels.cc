// One body for each optimizer, inlined into one function for each instruction set. Every operation
// rounds alike in all of them, with a fused multiply-add where torch's kernels have one, so the
// bits do not depend on the processor.
#include "collective/reduce/optimizer_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "collective/reduce/publish.h"

namespace regroup::collective::reduce {
namespace {

#define REGROUP_INLINE [[gnu::always_inline]] inline

REGROUP_INLINE void sgd(float* p, const float* g, std::size_t count, SgdScalars by) {
  for (std::size_t i = 0; i < count; ++i) {
    const float d = by.weight_decay == 0 ? g[i] : __builtin_fmaf(p[i], by.weight_decay, g[i]);
    p[i] = __builtin_fmaf(d, by.minus_lr, p[i]);
  }
}

REGROUP_INLINE void sgd_momentum(float* p, const float* g, float* m, std::size_t count,
                                 SgdScalars by) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const float d = by.weight_decay == 0 ? g[i] : __builtin_fmaf(p[i], by.weight_decay, g[i]);
    const float b = by.first ? d : __builtin_fmaf(d, by.new_share, m[i] * by.momentum);
    m[i] = b;
    const float change = by.nesterov ? __builtin_fmaf(b, by.momentum, d) : b;
    p[i] = __builtin_fmaf(change, by.minus_lr, p[i]);
  }
}

// Like torch's lerp, from the nearer end.
REGROUP_INLINE float lerp(float from, float to, float share) {
  return share < 0.5F ? __builtin_fmaf(share, to - from, from)
                      : __builtin_fmaf(share - 1, to - from, to);
}

REGROUP_INLINE void adam(float* p, const float* g, float* first, float* second, std::size_t count,
                         AdamScalars by) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const float d = by.weight_decay == 0 ? g[i] : __builtin_fmaf(p[i], by.weight_decay, g[i]);
    const float m = lerp(first[i], d, by.new_first);
    const float v = __builtin_fmaf(by.new_second * d, d, second[i] * by.keep_second);
    const float denominator = __builtin_sqrtf(v) / by.correction + by.epsilon;
    first[i] = m;
    second[i] = v;
    p[i] = p[i] * by.shrink + by.minus_step_size * m / denominator;
  }
}

REGROUP_INLINE void adagrad(float* p, const float* g, float* sums, std::size_t count,
                            AdagradScalars by) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = sums[i] + g[i] * g[i];
    sums[i] = sum;
    p[i] = p[i] + by.minus_lr * g[i] / (__builtin_sqrtf(sum) + by.epsilon);
  }
}

REGROUP_INLINE void row_adagrad(float* p, const float* g, float* sum, std::size_t count,
                                AdagradScalars by) {
  constexpr std::size_t kSums = 16;
  float partial[kSums] = {};
  std::size_t at = 0;
  for (; at + kSums <= count; at += kSums) {
    for (std::size_t i = 0; i < kSums; ++i) partial[i] += g[at + i] * g[at + i];
  }
  for (std::size_t i = 0; at + i < count; ++i) partial[i] += g[at + i] * g[at + i];
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  *sum += partial[0] / static_cast<float>(count);
  const float scale = by.minus_lr / (__builtin_sqrtf(*sum) + by.epsilon);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) p[i] = __builtin_fmaf(g[i], scale, p[i]);
}

REGROUP_INLINE void ftrl(float* p, const float* g, float* squares, float* z, std::size_t count,
                         FtrlScalars by) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = squares[i] + g[i] * g[i];
    const float root = __builtin_sqrtf(sum);
    const float sigma = (root - __builtin_sqrtf(squares[i])) / by.alpha;
    const float next = z[i] + (g[i] - sigma * p[i]);
    const float size = __builtin_fabsf(next) - by.l1;
    const float weight = -__builtin_copysignf(size, next) / ((by.beta + root) / by.alpha + by.l2);
    squares[i] = sum;
    z[i] = next;
    p[i] = size > 0 ? weight : 0.0F;
  }
}

// The rest of a cache line, or an unaligned range: non-temporal stores of partial lines are slow.
REGROUP_INLINE void stream_rest(float* to, const float* from, std::size_t count) {
  store_block(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
              count * sizeof(float), Stores::kStream);
}

#define REGROUP_KERNELS(name, ...)                                                             \
  __VA_ARGS__ void sgd_##name(float* p, const float* g, float* m, std::size_t count,           \
                              SgdScalars by) {                                                 \
    if (m == nullptr) {                                                                        \
      sgd(p, g, count, by);                                                                    \
    } else {                                                                                   \
      sgd_momentum(p, g, m, count, by);                                                        \
    }                                                                                          \
  }                                                                                            \
  __VA_ARGS__ void adam_##name(float* p, const float* g, float* first, float* second,          \
                               std::size_t count, AdamScalars by) {                            \
    adam(p, g, first, second, count, by);                                                      \
  }                                                                                            \
  __VA_ARGS__ void adagrad_##name(float* p, const float* g, float* sums, std::size_t count,    \
                                  AdagradScalars by) {                                         \
    adagrad(p, g, sums, count, by);                                                            \
  }                                                                                            \
  __VA_ARGS__ void row_adagrad_##name(float* p, const float* g, float* sum, std::size_t count, \
                                      AdagradScalars by) {                                     \
    row_adagrad(p, g, sum, count, by);                                                         \
  }                                                                                            \
  __VA_ARGS__ void ftrl_##name(float* p, const float* g, float* squares, float* z,             \
                               std::size_t count, FtrlScalars by) {                            \
    ftrl(p, g, squares, z, count, by);                                                         \
  }

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;  // bytes

REGROUP_KERNELS(avx512,
                [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")]])
REGROUP_KERNELS(avx2, [[gnu::target("avx2,fma")]])
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

[[gnu::target("avx512f")]] void stream_avx512(float* to, const float* from, std::size_t count) {
  std::size_t i = 0;
#ifndef REGROUP_PLAIN_STORES
  if (reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
    for (; i + 16 <= count; i += 16) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
  }
#endif
  stream_rest(to + i, from + i, count - i);
}

[[gnu::target("avx2")]] void stream_avx2(float* to, const float* from, std::size_t count) {
  std::size_t i = 0;
#ifndef REGROUP_PLAIN_STORES
  if (reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
    for (; i + 16 <= count; i += 16) {
      const __m256 low = _mm256_loadu_ps(from + i), high = _mm256_loadu_ps(from + i + 8);
      _mm256_stream_ps(to + i, low);
      _mm256_stream_ps(to + i + 8, high);
    }
  }
#endif
  stream_rest(to + i, from + i, count - i);
}
#endif
REGROUP_KERNELS(baseline)
void stream_baseline(float* to, const float* from, std::size_t count) {
  stream_rest(to, from, count);
}

constexpr std::array kAll {
#if defined(__x86_64__)
  OptimizerKernels{"avx512",       has_avx512,         sgd_avx512,  adam_avx512,
                   adagrad_avx512, row_adagrad_avx512, ftrl_avx512, stream_avx512},
      OptimizerKernels{"avx2",       has_avx2,         sgd_avx2,  adam_avx2,
                       adagrad_avx2, row_adagrad_avx2, ftrl_avx2, stream_avx2},
#endif
      OptimizerKernels{"baseline",       [] { return true; },  sgd_baseline,  adam_baseline,
                       adagrad_baseline, row_adagrad_baseline, ftrl_baseline, stream_baseline},
};

}  // namespace

std::span<const OptimizerKernels> all_optimizer_kernels() { return kAll; }

const OptimizerKernels& best_optimizer_kernels() {
  static const OptimizerKernels& best =
      *std::ranges::find_if(kAll, [](const OptimizerKernels& k) { return k.usable(); });
  return best;
}

}  // namespace regroup::collective::reduce
