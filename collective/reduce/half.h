// Converts between 16-bit floats and float32, with the same rounding as TreeFold.
#pragma once

#include <cstddef>

#include "regroup/operation.h"

namespace regroup::collective::reduce {

// Convert `count` elements; `dtype` is kFloat16 or kBfloat16. Any alignment; `to` and `from` must
// not overlap.
void widen(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype);
void narrow(std::byte* to, const std::byte* from, std::size_t count,
            Dtype dtype);  // rounds to nearest even

}  // namespace regroup::collective::reduce
