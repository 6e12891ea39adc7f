// What the ranks must agree on.
#pragma once

#include <cstdint>
#include <string>

#include "collective/operation.h"

namespace regroup::collective {

// An operation as all ranks must see it.
struct Call {
  std::uint64_t what = 0;   // kind 8 bits | dtype 8 | op 8 | unused 8 | root, or leaves of sum_partials 32
  std::uint64_t bytes = 0;  // of a block

  bool operator==(const Call&) const = default;
};
[[nodiscard]] Call call_of(const Operation& operation, int size);
// Names a kind, a dtype and an op that there are, as what call_of() makes does; nothing else may be
// described.
[[nodiscard]] bool is_call(Call call);
// "allreduce of 16 bytes (float32, sum)".
[[nodiscard]] std::string describe(Call call);

}  // namespace regroup::collective
