// The part of an operation on which all ranks must agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "regroup/operation.h"

namespace regroup::collective {

// An operation as every rank must see it.
struct CollectiveSignature {
  // Kind or kTreeReduce 8 bits | dtype 8 | op 8 | unused 8 | root or leaf count 32.
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;  // of a block

  bool operator==(const CollectiveSignature&) const = default;
};
[[nodiscard]] CollectiveSignature signature_of(const Operation& operation, int size);
// Of TreeReducer::reduce() with a result of `bytes`.
// Where the Kind of an operation stands: no Kind has it.
inline constexpr std::uint64_t kTreeReduce = 11;
[[nodiscard]] CollectiveSignature tree_reduce_signature(Dtype dtype, std::uint32_t leaf_count,
                                                        std::size_t bytes);
// True when kind, dtype and op are valid values, as the functions above produce them. Those below
// accept no other.
[[nodiscard]] bool is_valid_signature(CollectiveSignature signature);
[[nodiscard]] const char* name_of(CollectiveSignature signature);  // "allreduce"
// "allreduce of 16 bytes (float32, sum)".
[[nodiscard]] std::string describe(CollectiveSignature signature);

}  // namespace regroup::collective
