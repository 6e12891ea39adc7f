// The tables of a parameter server as tensors of a checkpoint, and back into the stores of any
// number of shards: docs/design/ps_checkpoint.md.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_store.h"
#include "collective/ps/range_copy.h"
#include "collective/ps/server.h"

namespace regroup::persist {

// The tensor that has the tables' specs, in JSON.
inline constexpr const char* kSpecsName = "@tables";
// The tensor that has the number of steps of mode sync, if there were any.
inline constexpr const char* kStepName = "@step";

// The specs as JSON. Doubles keep their bits.
[[nodiscard]] std::string to_json(std::span<const collective::ps::TableSpec> specs);
// The inverse of to_json(). kDataLoss: `text` is none.
[[nodiscard]] base::Result<std::vector<collective::ps::TableSpec>> specs_of(std::string_view text);

// Copies of all tables and their tensors. `pieces` point into the rest.
struct TablesImage {
  std::vector<checkpoint::CheckpointPiece> pieces;
  std::vector<collective::ps::RangeCopy> copies;  // by table, then position
  std::deque<std::vector<std::int64_t>> ids;
  std::string specs;
  std::vector<std::uint64_t> step;  // of mode sync: one, the number of steps that all tables have
};
// The tensors of copies, in any order, of all ranges of their tables.
[[nodiscard]] TablesImage image_of(std::vector<collective::ps::RangeCopy> copies);

// Copies all tables, each range as of a moment of its own; in mode sync, in which no step is
// applied meanwhile, all of one step. `shards`: all of the host, mapped for writing. Calls `sign`
// for each range. Where a server has died in the middle of a push, applies the log unless the next
// server does. kDeadlineExceeded: a server hangs for a minute.
[[nodiscard]] base::Result<TablesImage> copy_tables(
    std::span<const collective::ps::MappedShard> shards, const std::function<void()>& sign);

// Puts the tables of a checkpoint into empty stores, which no server has yet. kResourceExhausted:
// they do not fit. kDataLoss: the checkpoint is damaged.
[[nodiscard]] base::Status restore_tables(std::span<const collective::ps::MappedShard> shards,
                                          const checkpoint::Checkpoint& from,
                                          const std::function<void()>& sign);

}  // namespace regroup::persist
