// Keeps a shard's server from changing its store for a moment, so that another process, which
// writes a checkpoint, can copy a part of it as of one moment. docs/design/ps_checkpoint.md.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/segment.h"

namespace regroup::collective::ps {

// Held by the server while it changes the store. Between two changes a ShardPause gets its turn: it
// waits for `writing` with `turn` in its hands, which the server needs for its next change.
class WriteTurn {
 public:
  // Blocks while a ShardPause is held. `memory` must outlive it.
  explicit WriteTurn(const StoreMemory& memory);
  WriteTurn(const WriteTurn&) = delete;
  WriteTurn& operator=(const WriteTurn&) = delete;
  ~WriteTurn();
  // All that was begun is applied as a whole. Without it the store stays unsettled: no pause
  // succeeds until another server has applied the log.
  void settle();

 private:
  const StoreMemory& memory_;
};

// No server changes the store while it is held. Its holder changes nothing, so a server goes on
// when the holder's process dies.
class ShardPause {
 public:
  // `memory` is mapped for writing and must outlive the pause. kUnavailable: the last server died
  // before its change was whole, so the next one must apply the log first. kDeadlineExceeded: the
  // server did not end its change.
  [[nodiscard]] static base::Result<ShardPause> take(const StoreMemory& memory,
                                                     base::TimePoint deadline);
  ShardPause(ShardPause&& other) noexcept;
  ShardPause& operator=(ShardPause&&) = delete;
  ~ShardPause();

 private:
  explicit ShardPause(const StoreMemory& memory) : memory_(&memory) {}
  const StoreMemory* memory_;
};

}  // namespace regroup::collective::ps
