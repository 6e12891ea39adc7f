// The marks of a ledger: elements after the gradient in each leaf, in which the leaf says what it
// is. The other leaves have zeros there, so the sum of the step says which leaves it contains, how
// often, and of which samples. Each element is a whole number below 2^16: float32 sums such numbers
// exactly, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/tree_reducer.h"
#include "elastic/ledger_format.h"
#include "proto/world.h"

namespace regroup::elastic {

// The number of elements that a leaf has for marks.
[[nodiscard]] std::uint64_t mark_elements(std::uint32_t shards);

// Overwrites the marks of a leaf: those of all other leaves are zero. `marks`: mark_elements() of
// `dtype`, which is kFloat32 or kFloat64.
void write_marks(std::span<std::byte> marks, collective::Dtype dtype, proto::Step step,
                 std::uint32_t leaf, const LeafRecord& record);

struct StepMarks {
  proto::Step step = 0;  // 0 or another one: they are not those of one whole step
  std::vector<LeafRecord> leaves;
};
// Reads the marks of a sum.
[[nodiscard]] StepMarks read_marks(std::span<const std::byte> marks, collective::Dtype dtype,
                                   std::uint32_t shards);

}  // namespace regroup::elastic
