// Where the sealed sums of a step lie: the partial sums that a reduction takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::elastic {

// A sum over the leaves of a canonical node, complete under its seal.
struct SealedSum {
  proto::Interval leaves;
  proto::SlotIndex slot = 0;  // of the member that filled it
  std::uint32_t buffer = 0;   // of that slot
  bool on_device = false;     // in the member's device line, else in the arena
};

// The largest sealed sums of `step` that together cover every leaf owned on this host, each in its
// owner's slot; empty while one is missing.
[[nodiscard]] std::optional<std::vector<SealedSum>> sealed_sums(
    const shmem::Arena& arena, proto::Step step, const std::vector<proto::SlotId>& owners);

}  // namespace regroup::elastic
