// Shapes of the tree kernel with ordinary loads and stores.
#include <cstdint>

namespace {

template <class T>
__device__ __forceinline__ T plain_load(const T* from) {
  return *from;
}
template <class T>
__device__ __forceinline__ void plain_store(T* to, T value) {
  *to = value;
}

}  // namespace

#define __ldcs plain_load
#define __stcs plain_store
#define REGROUP_VARIANTS plain_variants
#define REGROUP_SUFFIX " plain"
#include "tests/gpu/variants.inc"
