// The source side of a state transfer on one node. The members here write the snapshot, the state
// after one step, as they pass that step; the agent copies the results of later steps into a ring
// before they are overwritten. docs/design/catch_up.md.
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
  // Requests the snapshot of the state after base.step from the members of `world` on this node;
  // step 0: after the first step that none of them can have passed. Returns the step, which is
  // later than the World's resume step, so that every member has the state. kUnavailable: a member
  // has passed the step or it is too old, no member is here, no memory is reserved, or the snapshot
  // is in use.
  [[nodiscard]] base::Result<proto::Step> begin(const shmem::Arena& arena, proto::TransferStep base,
                                                const proto::World& world);
  // Does a bounded part of the work. `consumed`: every target has the results up to this step.
  // True: call again at once.
  bool poll(const shmem::Arena& arena, proto::Step consumed);
  // Records the members' progress. Call it before a slot is reassigned, after which its owner's
  // progress is lost.
  void read_state_words(const shmem::Arena& arena);
  // Call before publishing `world`. `read`: every target has read the snapshot.
  void on_world(const shmem::Arena& arena, const proto::World& world, bool read);
  void end(const shmem::Arena& arena);

  [[nodiscard]] bool active() const { return base_.transfer != 0 && broken_.empty(); }
  // The transfer, and the step of the snapshot.
  [[nodiscard]] proto::TransferStep base() const { return base_; }
  // True once all members have written their parts of the snapshot.
  [[nodiscard]] bool snapshot_complete() const { return snapshot_ != Snapshot::kWriting; }
  // True once the snapshot was complete and donors of a later World may overwrite it.
  [[nodiscard]] bool snapshot_gone() const { return snapshot_ == Snapshot::kGone; }
  // The step up to which the ring has every result.
  [[nodiscard]] proto::Step kept_up_to() const { return kept_up_to_; }
  // Why the transfer failed; "": it has not.
  [[nodiscard]] const std::string& broken() const { return broken_; }

 private:
  enum class Snapshot : std::uint8_t { kWriting, kComplete, kGone };
  void break_off(const shmem::Arena& arena, std::string why);
  void check_writers(const shmem::Arena& arena);
  [[nodiscard]] bool copy_next_chunks(const shmem::Arena& arena);

  proto::TransferStep base_;
  std::vector<proto::SlotId> writers_;
  Snapshot snapshot_ = Snapshot::kWriting;
  proto::Step kept_up_to_ = 0;
  proto::Step committed_ = 0;
  proto::Step furthest_ = 0;  // highest step that a member has opened
  std::size_t chunk_ = 0;     // next chunk of the result that is being copied
  std::string broken_;
};

// True if a living member of this node reads or writes the snapshot.
[[nodiscard]] bool snapshot_in_use(const shmem::Arena& arena);

}  // namespace regroup::membership
