// Which blocks of a result are complete, so that the next generation can resume a sum that a revoke
// interrupted.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "proto/world.h"

namespace regroup::collective {

// Marks of the blocks of the result that the members of a host share. They are in arena memory,
// which outlives generations. All members of a host see the same marks; all hosts have equally
// many. Empty: no marks are kept.
struct SumBlocks {
  std::span<std::atomic<std::uint32_t>> marks;  // block i is complete where marks[i] == sum
  // Set by begin_sum(); not null if there are marks.
  std::atomic<std::uint32_t>* generation = nullptr;
  // Number of this sum, not 0; no two results in the same memory have the same number.
  std::uint32_t sum = 0;
};

// Clears all marks except those of the blocks `kept` (ascending), which are complete on all hosts,
// and records that later marks are made in generation `g`. So the blocks of hosts that report the
// same generation have the same bits. Call it after the last store of every member of an earlier
// generation and before the first store of a member of `g`.
void begin_sum(const SumBlocks& blocks, proto::Generation g,
               std::span<const proto::Interval> kept = {});

}  // namespace regroup::collective
