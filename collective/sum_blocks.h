// A sum goes on where the end of a generation has cut it short: which blocks of its result are there already.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/world.h"

namespace regroup::collective {

// Of the result that the members of a host share, in memory that outlives generations and is theirs as long
// as the arena is. Of all members of a host the same, on all hosts as many. Empty: nothing is kept of a sum.
struct SumBlocks {
  std::span<std::atomic<std::uint32_t>> marks;       // block i is there, whole, where marks[i] is `sum`
  std::atomic<std::uint32_t>* generation = nullptr;  // behind begin_sum(); there if there are marks
  std::uint32_t sum = 0;  // its number: another for each result, as long as the memory is there; not 0
};

// Before a member of generation `g` writes to the result, and behind the last store of any of an earlier one:
// no block is marked but those in `kept`, which all hosts have, ascending. Later ones are marked in `g`, so
// that hosts that tell the same generation have marked the same bits.
void begin_sum(const SumBlocks& blocks, core::Generation g, std::span<const core::Interval> kept = {});

}  // namespace regroup::collective
