// Conversions between 16-bit floats and float32, with the rounding of the fold of the shm backend.
#pragma once

#include <cstddef>

#include "regroup/operation.h"

namespace regroup::collective::reduce {

// `count` elements; `dtype` is kFloat16 or kBfloat16. Memory of any alignment that does not
// overlap.
void widen(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype);
void narrow(std::byte* to, const std::byte* from, std::size_t count,
            Dtype dtype);  // rounds to nearest even

}  // namespace regroup::collective::reduce
