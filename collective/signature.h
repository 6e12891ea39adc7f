// The parameters of an operation on which all ranks must agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "regroup/operation.h"

namespace regroup::collective {

struct CollectiveSignature {
  // Kind or kTreeReduce 8 bits | dtype 8 | op 8 | unused 8 | root or leaf count 32.
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;  // in a block

  bool operator==(const CollectiveSignature&) const = default;
};
[[nodiscard]] CollectiveSignature signature_of(const Operation& operation, int size);
// Marks TreeReducer::reduce() in the place of a Kind; no Kind has this value.
inline constexpr std::uint64_t kTreeReduce = 11;
// The signature of TreeReducer::reduce() with a result of `bytes`.
[[nodiscard]] CollectiveSignature tree_reduce_signature(Dtype dtype, std::uint32_t leaf_count,
                                                        std::size_t bytes);
// True if kind, dtype and op are valid. The functions below require it.
[[nodiscard]] bool is_valid_signature(CollectiveSignature signature);
[[nodiscard]] const char* name_of(CollectiveSignature signature);  // "allreduce"
// "allreduce of 16 bytes (float32, sum)".
[[nodiscard]] std::string describe(CollectiveSignature signature);

}  // namespace regroup::collective
