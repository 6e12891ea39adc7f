// Which blocks of a result are complete, so that a sum that the end of a generation interrupted can
// be resumed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "proto/world.h"

namespace regroup::collective {

// Marks of the result that the members of a host share, in arena memory, which outlives
// generations. Equal for all members of a host; all hosts have equally many. Empty: no marks are
// kept.
struct SumBlocks {
  std::span<std::atomic<std::uint32_t>> marks;  // block i is complete where marks[i] == sum
  // Set by begin_sum(); not null if there are marks.
  std::atomic<std::uint32_t>* generation = nullptr;
  // Its number: another for each result, as long as the memory is there; not 0.
  std::uint32_t sum = 0;
};

// To be called before a member of generation `g` writes to the result, and after the last store of
// any earlier one: clears all marks but those of the blocks in `kept`, ascending, which all hosts
// have. Later blocks are marked in `g`, so that hosts that report the same generation have marked
// the same bits.
void begin_sum(const SumBlocks& blocks, proto::Generation g,
               std::span<const proto::Interval> kept = {});

}  // namespace regroup::collective
