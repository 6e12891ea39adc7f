// A copy of a range as of one moment, for a checkpoint. docs/design/ps_checkpoint.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "collective/ps/range.h"
#include "collective/ps/shard_pause.h"

namespace regroup::collective::ps {

// The rows that were pushed, all or those that changed, in ascending order of positions; of a dense
// range all elements.
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
// writing. With `since`: only rows that a push with a greater LSN has changed. Pauses its server
// meanwhile; sorts the rows after that. Needs memory for twice what it copies. Errors as
// ShardPause::take(); kDataLoss: the store is damaged.
[[nodiscard]] base::Result<RangeCopy> copy_range(const StoreMemory& memory,
                                                 const RangeHeader& header,
                                                 base::TimePoint deadline,
                                                 std::optional<std::uint64_t> since = {});

// What a copy of the range since `since` would have, and one of all of it, in bytes of the store.
struct RangeChanges {
  std::uint64_t changed = 0;
  std::uint64_t all = 0;
  std::uint64_t lsn = 0;  // of the moment
};
// Pauses the range's server, and reads the header of each row that may have changed. Errors as
// copy_range().
[[nodiscard]] base::Result<RangeChanges> count_changes(const StoreMemory& memory,
                                                       const RangeHeader& header,
                                                       std::uint64_t since,
                                                       base::TimePoint deadline);

// Notes in the store, mapped for writing, that the checkpoint of step `step` has the pushes of the
// range of `header` up to `lsn`. One process at a time calls it; if it dies, either it has noted
// both or saved_lsn() knows.
void note_saved(const StoreMemory& memory, const RangeHeader& header, std::uint64_t lsn,
                std::uint64_t step);
// The LSN that was noted with `step`; empty: none was.
[[nodiscard]] std::optional<std::uint64_t> saved_lsn(const RangeHeader& header, std::uint64_t step);

}  // namespace regroup::collective::ps
