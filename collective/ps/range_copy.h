// A copy of a range as of one moment, for a checkpoint. docs/design/ps_checkpoint.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collective/ps/range.h"
#include "collective/ps/shard_pause.h"

namespace regroup::collective::ps {

// The rows that were pushed, in ascending order of positions; of a dense range all elements.
struct RangeCopy {
  TableSpec spec;
  PositionRange range;
  std::uint64_t lsn = 0;  // it has all pushes up to this one, and no other
  // As in RowsView.
  std::vector<std::uint64_t> positions;
  std::vector<std::uint32_t> updates;
  std::vector<std::byte> values;
  std::vector<std::byte> state;

  [[nodiscard]] RowsView view() const { return {positions, updates, values, state}; }
};

// A dense range to which nothing was pushed.
[[nodiscard]] RangeCopy initial_copy(const TableSpec& spec, PositionRange range,
                                     std::uint64_t job_seed);

// Copies the range of `header`, which lies in `memory`, all segments of which are mapped for
// writing. Pauses its server meanwhile; sorts the rows after that. Needs memory for twice the
// range. Errors as ShardPause::take(); kDataLoss: the store is damaged.
[[nodiscard]] base::Result<RangeCopy> copy_range(const StoreMemory& memory,
                                                 const RangeHeader& header,
                                                 base::TimePoint deadline);

}  // namespace regroup::collective::ps
