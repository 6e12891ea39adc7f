// The receiving side of a state transfer on one node: tells its learners of the snapshot, and watches how far
// they have come with the results behind it. docs/design/learners.md.
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
  struct Received {  // on this node
    bool snapshot = false;
    core::Step kept = 0, newest = 0;  // results: up to here, of those that the source has
  };
  // What is to be told: a member has caught up (once), has the state of its World (once), or could not go on.
  [[nodiscard]] std::vector<core::TargetStatus> poll(const core::Arena& arena, const Received& received,
                                                     const core::World& world);
  // The state transfer cannot go on. Those that had not said they have all are told of with `why`.
  [[nodiscard]] std::vector<core::TargetStatus> break_off(const core::Arena& arena, const std::string& why);
  void forget(core::MemberId member) { learners_.erase(member); }
  // What a member that has caught up may have applied; else 0.
  [[nodiscard]] core::Step may_have(core::MemberId member) const;
  void end(const core::Arena& arena);

  [[nodiscard]] core::TransferStep base() const { return base_; }
  [[nodiscard]] bool active() const { return !learners_.empty(); }
  // All learners have read the snapshot.
  [[nodiscard]] bool read() const;
  // Results up to here are applied by all who still need any.
  [[nodiscard]] core::Step consumed() const;

 private:
  struct Learner {
    core::SlotIndex slot = 0;
    core::Step replayed = 0;  // 0: it has not read the snapshot
    bool reported = false;    // that it has caught up
    bool arrived = false;     // has the state of its World
  };
  [[nodiscard]] std::string read_progress(const core::Arena& arena, Learner* learner) const;

  core::TransferStep base_;
  bool announced_ = false;
  core::Step kept_ = 0;
  std::map<core::MemberId, Learner> learners_;
};

}  // namespace regroup::membership
