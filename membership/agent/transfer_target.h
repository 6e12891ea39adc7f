// The target side of a state transfer on one node: offers the snapshot to the learners here, and
// tracks which results each has replayed. docs/design/catch_up.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/node_message.h"
#include "proto/transfer_step.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::membership {

// Not thread-safe, never blocks.
class TransferTarget {
 public:
  struct LearnerSlot {
    proto::MemberId member = 0;
    proto::SlotIndex slot = 0;
  };
  void begin(proto::TransferStep base, const std::vector<LearnerSlot>& learners);
  struct Received {              // what this node has received of the transfer
    bool snapshot = false;       // the whole snapshot
    proto::Step kept_up_to = 0;  // all results up to this step
    proto::Step newest = 0;      // newest result of the source
  };
  // Returns the reports that are due: a learner has caught up, has the state of its World, or has
  // failed; each at most once per learner.
  [[nodiscard]] std::vector<proto::TargetStatus> poll(const shmem::Arena& arena,
                                                      const Received& received,
                                                      const proto::World& world);
  // Ends the transfer with an error. Returns a report with `why` for every learner that does not
  // have its state yet.
  [[nodiscard]] std::vector<proto::TargetStatus> break_off(const shmem::Arena& arena,
                                                           const std::string& why);
  void forget(proto::MemberId member) { learners_.erase(member); }
  // The newest step that a learner which has caught up may have applied; 0 for any other member.
  [[nodiscard]] proto::Step may_have(proto::MemberId member) const;
  void end(const shmem::Arena& arena);

  [[nodiscard]] proto::TransferStep base() const { return base_; }
  [[nodiscard]] bool active() const { return !learners_.empty(); }
  // True if all learners have read the snapshot.
  [[nodiscard]] bool read() const;
  // The step up to which every learner that still replays has applied the results.
  [[nodiscard]] proto::Step consumed() const;

 private:
  struct Learner {
    proto::SlotIndex slot = 0;
    proto::Step replayed = 0;  // 0: it has not read the snapshot yet
    bool reported = false;     // poll() has reported that it has caught up
    bool arrived = false;      // it has the state of its World
  };
  [[nodiscard]] std::string read_progress(const shmem::Arena& arena, Learner* learner) const;

  proto::TransferStep base_;
  bool announced_ = false;
  proto::Step kept_up_to_ = 0;
  std::map<proto::MemberId, Learner> learners_;
};

}  // namespace regroup::membership
