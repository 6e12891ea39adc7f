// 16-bit floats to float32 and back, as the fold of the shm backend does it.
#pragma once

#include <cstddef>

#include "collective/operation.h"

namespace regroup::collective {

// `count` elements; `dtype` is kFloat16 or kBfloat16. Memory of any alignment that does not overlap.
void widen(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype);
void narrow(std::byte* to, const std::byte* from, std::size_t count, Dtype dtype);  // to nearest even

}  // namespace regroup::collective
