// Selects the kernels for the instruction set of this processor.
#include "collective/reduce/kernels.h"

#include <cassert>

namespace regroup::collective::reduce {

#if defined(__x86_64__)

Simd best_simd() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Simd::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? Simd::kAvx2 : Simd::kBaseline;
}

const Kernels& kernels_of(Simd level) {
  assert(level <= best_simd());
  switch (level) {
    case Simd::kAvx512:
      return kKernelsAvx512;
    case Simd::kAvx2:
      return kKernelsAvx2;
    case Simd::kBaseline:
      break;
  }
  return kKernelsBaseline;
}

#else

Simd best_simd() { return Simd::kBaseline; }

const Kernels& kernels_of([[maybe_unused]] Simd level) {
  assert(level <= best_simd());
  return kKernelsBaseline;
}

#endif

}  // namespace regroup::collective::reduce
