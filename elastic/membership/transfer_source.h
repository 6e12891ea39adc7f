// The giving side of a state transfer on one node: the state after one step, which members write into the
// snapshot as they pass it, and the results of the steps behind it, which the agent copies before they are
// overwritten. docs/design/learners.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/status.h"
#include "core/transfer_step.h"
#include "core/world.h"

namespace regroup::membership {

// Not thread-safe, never blocks: poll() copies a bounded part.
class TransferSource {
 public:
  // Members of `world` on this node write the state after `step`, or after the next step that none of them
  // can have passed (0): one behind the step it resumes from, so that all of them have it. Returns that step.
  // kUnavailable: it is too late or too early, none is here, or the state transfer before is still being
  // written.
  [[nodiscard]] core::Result<core::Step> begin(const core::Arena& arena, core::TransferStep base,
                                               const core::World& world);
  // Takes up the next part of the work; results up to `consumed` are needed by nobody any more. True: there
  // is more to do at once.
  bool poll(const core::Arena& arena, core::Step consumed);
  // Before a line is given to somebody else: what its member did counts.
  void read_state_words(const core::Arena& arena);
  // From now on the members are others. `read`: nobody reads the snapshot any more.
  void on_world(const core::Arena& arena, const core::World& world, bool read);
  void end(const core::Arena& arena);

  [[nodiscard]] bool active() const { return base_.transfer != 0 && broken_.empty(); }
  [[nodiscard]] core::TransferStep base() const { return base_; }
  [[nodiscard]] bool snapshot_complete() const { return complete_; }
  [[nodiscard]] bool snapshot_gone() const { return gone_; }  // who has not read it comes too late
  [[nodiscard]] core::Step kept() const { return kept_; }     // all results behind the snapshot up to here
  [[nodiscard]] const std::string& broken() const { return broken_; }  // why it cannot go on; empty: it can

 private:
  void break_off(const core::Arena& arena, std::string why);
  void check_writers(const core::Arena& arena);
  [[nodiscard]] bool copy_next_chunks(const core::Arena& arena);

  core::TransferStep base_;
  std::vector<core::Seat> writers_;
  bool complete_ = false, gone_ = false;
  core::Step kept_ = 0, committed_ = 0, furthest_ = 0;  // furthest: the highest step that anybody has opened
  std::size_t chunk_ = 0;                               // of the result that is being copied
  std::string broken_;
};

// Somebody here reads or writes the snapshot.
[[nodiscard]] bool snapshot_in_use(const core::Arena& arena);

}  // namespace regroup::membership
