// The part of an operation on which all ranks must agree.
#pragma once

#include <cstdint>
#include <string>

#include "collective/operation.h"

namespace regroup::collective {

// An operation as every rank must see it.
struct CollectiveSignature {
  std::uint64_t what = 0;   // kind 8 bits | dtype 8 | op 8 | unused 8 | root, or leaves of sum_partials 32
  std::uint64_t bytes = 0;  // of a block

  bool operator==(const CollectiveSignature&) const = default;
};
[[nodiscard]] CollectiveSignature signature_of(const Operation& operation, int size);
// True when kind, dtype and op are valid values, as signature_of() produces them. describe() accepts no
// other.
[[nodiscard]] bool is_valid_signature(CollectiveSignature signature);
// "allreduce of 16 bytes (float32, sum)".
[[nodiscard]] std::string describe(CollectiveSignature signature);

}  // namespace regroup::collective
