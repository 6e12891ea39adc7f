// The tables of a parameter server as tensors of a checkpoint, and back into the stores of any
// number of shards: docs/design/ps_checkpoint.md.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
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
  bool changes = false;             // it has only what changed since the base
  // All ranges of the stores, and the pushes that the base and this image have of each.
  struct SavedRange {
    const collective::ps::StoreMemory* memory = nullptr;
    const collective::ps::RangeHeader* header = nullptr;
    std::uint64_t lsn = 0;
  };
  std::vector<SavedRange> ranges;

  TablesImage() = default;
  TablesImage(TablesImage&&) = default;
  TablesImage& operator=(TablesImage&&) = default;
  TablesImage(const TablesImage&) = delete;  // pieces point to what it owns
  TablesImage& operator=(const TablesImage&) = delete;
};

// The tensors of copies, in any order, of all ranges of their tables. `others`: tables of which
// nothing has changed.
[[nodiscard]] TablesImage image_of(std::vector<collective::ps::RangeCopy> copies,
                                   std::vector<collective::ps::TableSpec> others = {});

// The newest checkpoint that note_saved() knows, and the bytes of the changes up to it since the
// last whole one.
struct TablesBase {
  proto::Step step = 0;
  std::uint64_t changed_bytes = 0;
};

// Copies all tables, each range as of a moment of its own; in mode sync, in which no step is
// applied meanwhile, all of one step. `shards`: all of the host, mapped for writing. Of a table of
// which another host has all ranges the image has the spec alone. With `base`
// copies what has changed since, unless these changes and those before are more than half of the
// tables. Calls `sign` for each range. Where a server has died in the middle of a push, applies the
// log unless the next server does. kDeadlineExceeded: a server hangs for a minute.
// `agree`: of several stores, in mode sync: given the steps that this one has logged, returns the
// least of all, once all hold them. `wait` is false if this store has no steps.
using AgreeOnSteps = std::function<base::Result<std::uint64_t>(std::uint64_t logged, bool wait)>;
[[nodiscard]] base::Result<TablesImage> copy_tables(
    std::span<const collective::ps::MappedShard> shards, const std::function<void()>& sign,
    const std::optional<TablesBase>& base = {}, const AgreeOnSteps& agree = {});
// Notes that the checkpoint of step `step` has the tables of `image`.
void note_saved(const TablesImage& image, proto::Step step);

// Puts the tables of a checkpoint into empty stores, which no server has yet: their ranges, if they
// are a part of a job's stores. `chain`: as checkpoint::open_chain() has it. kResourceExhausted:
// they do not fit. kDataLoss: the checkpoint is damaged.
[[nodiscard]] base::Status restore_tables(std::span<const collective::ps::MappedShard> shards,
                                          std::span<const checkpoint::Checkpoint> chain,
                                          const std::function<void()>& sign,
                                          const collective::ps::TablePart& part = {});

}  // namespace regroup::persist
