// Calls the conversion kernels that TreeFold uses.
#include "collective/reduce/half.h"

#include "collective/reduce/kernels.h"
#include "collective/reduce/standard_arithmetic.h"

namespace regroup::collective::reduce {
namespace {

std::size_t index_of(Dtype dtype) { return dtype == Dtype::kBfloat16 ? 1 : 0; }

}  // namespace

void widen(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype) {
  const StandardArithmetic arithmetic;
  kernels_of(best_simd()).widen[index_of(dtype)](reinterpret_cast<float*>(to), from, count);
}

void narrow(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype) {
  const StandardArithmetic arithmetic;
  kernels_of(best_simd()).narrow[index_of(dtype)](to, reinterpret_cast<const float*>(from), count);
}

}  // namespace regroup::collective::reduce
