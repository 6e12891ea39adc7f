// The target side of a state transfer on one node: offers the snapshot to its learners, and follows how far
// each has replayed the results after it. docs/design/catch_up.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/node_message.h"
#include "core/transfer_step.h"
#include "core/world.h"

namespace regroup::membership {

// Not thread-safe, never blocks.
class TransferTarget {
 public:
  struct LearnerSlot {
    core::MemberId member = 0;
    core::SlotIndex slot = 0;
  };
  void begin(core::TransferStep base, const std::vector<LearnerSlot>& learners);
  struct Received {  // what this node has of the transfer
    bool snapshot = false;
    core::Step kept = 0, newest = 0;  // results: all up to `kept`; the source has them up to `newest`
  };
  // Returns the reports that are due: a learner has caught up (once), has the state of its World (once), or
  // has failed.
  [[nodiscard]] std::vector<core::TargetStatus> poll(const core::Arena& arena, const Received& received,
                                                     const core::World& world);
  // Ends the transfer with an error: a report with `why` for every learner that does not have its state yet.
  [[nodiscard]] std::vector<core::TargetStatus> break_off(const core::Arena& arena, const std::string& why);
  void forget(core::MemberId member) { learners_.erase(member); }
  // The newest step that a learner which has caught up may have applied; 0 for any other member.
  [[nodiscard]] core::Step may_have(core::MemberId member) const;
  void end(const core::Arena& arena);

  [[nodiscard]] core::TransferStep base() const { return base_; }
  [[nodiscard]] bool active() const { return !learners_.empty(); }
  // All learners have read the snapshot.
  [[nodiscard]] bool read() const;
  // Every learner that still replays has applied the results up to this step.
  [[nodiscard]] core::Step consumed() const;

 private:
  struct Learner {
    core::SlotIndex slot = 0;
    core::Step replayed = 0;  // 0: it has not read the snapshot
    bool reported = false;    // that it has caught up
    bool arrived = false;     // it has the state of its World
  };
  [[nodiscard]] std::string read_progress(const core::Arena& arena, Learner* learner) const;

  core::TransferStep base_;
  bool announced_ = false;
  core::Step kept_ = 0;
  std::map<core::MemberId, Learner> learners_;
};

}  // namespace regroup::membership
