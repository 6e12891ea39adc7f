// The source side of a state transfer on one node: the snapshot of the state after one step, which
// the members here write as they pass that step, and the results of the steps after it, which the
// agent copies into a ring before they are overwritten. docs/design/catch_up.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/transfer_step.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::membership {

// Not thread-safe, never blocks: poll() copies a bounded amount.
class TransferSource {
 public:
  // Asks the members of `world` on this node for the snapshot of the state after base.step; 0:
  // after the first step that none of them can have passed. Returns that step, which is after the
  // one the World resumes from, so that every member has its state. kUnavailable: the step is
  // passed or too old, no member is here, no memory is reserved, or the snapshot is in use.
  [[nodiscard]] base::Result<proto::Step> begin(const shmem::Arena& arena, proto::TransferStep base,
                                                const proto::World& world);
  // Does the next part of the work. No target needs results up to `consumed` any more. True: call
  // again at once.
  bool poll(const shmem::Arena& arena, proto::Step consumed);
  // Call before a member's slot is reassigned: its progress counts, and is readable only until
  // then.
  void read_state_words(const shmem::Arena& arena);
  // A new World is about to be published. `read`: every target has read the snapshot.
  void on_world(const shmem::Arena& arena, const proto::World& world, bool read);
  void end(const shmem::Arena& arena);

  [[nodiscard]] bool active() const { return base_.transfer != 0 && broken_.empty(); }
  [[nodiscard]] proto::TransferStep base() const {
    return base_;
  }  // the transfer and the snapshot's step
  // All of its writers have written it.
  [[nodiscard]] bool snapshot_complete() const { return snapshot_ != Snapshot::kWriting; }
  // It was complete, and the donors of a later World overwrite it.
  [[nodiscard]] bool snapshot_gone() const { return snapshot_ == Snapshot::kGone; }
  [[nodiscard]] proto::Step kept() const {
    return kept_;
  }  // the ring has every result up to this step
  [[nodiscard]] const std::string& broken() const {
    return broken_;
  }  // why it failed; empty: it has not

 private:
  enum class Snapshot : std::uint8_t { kWriting, kComplete, kGone };
  void break_off(const shmem::Arena& arena, std::string why);
  void check_writers(const shmem::Arena& arena);
  [[nodiscard]] bool copy_next_chunks(const shmem::Arena& arena);

  proto::TransferStep base_;
  std::vector<proto::SlotId> writers_;
  Snapshot snapshot_ = Snapshot::kWriting;
  proto::Step kept_ = 0, committed_ = 0,
              furthest_ = 0;  // furthest: the highest step that a member has opened
  std::size_t chunk_ = 0;     // next chunk of the result that is being copied
  std::string broken_;
};

// True if a living member of this node reads or writes the snapshot.
[[nodiscard]] bool snapshot_in_use(const shmem::Arena& arena);

}  // namespace regroup::membership
