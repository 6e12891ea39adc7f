// The last save of a job, which one member copies alone: the agent requests it before an
// announced end, and it may be due after the last step of a training.
// docs/design/checkpoint_in_a_job.md.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/checkpointing.h"
#include "elastic/participant.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "regroup/state.h"

namespace regroup::elastic {

// What a member does when its state is requested. In both cases the state is that after its last
// applied step.
enum class MemberActivity {
  kAtBoundary,  // it leaves, and opens no further step
  kWaiting,     // it waits for others, with a step open or between two generations
};

// One member's handling of the requests. Used by the training thread only.
class FinalSave {
 public:
  // True if the agent requests the state of a member in `activity` and this member has not handled
  // the request.
  [[nodiscard]] bool wanted(Participant& self, proto::Step applied, const Checkpointing& options,
                            MemberActivity activity) const;
  // Copies the state after `applied` into the save area, unless it is saved already or another
  // member copies it. Blocks until an older save is on disk, at most until the agent's
  // deadline.
  [[nodiscard]] base::Status answer(Participant& self, State& state, proto::Step applied,
                                    const Checkpointing& options, SavePlan* plan,
                                    MemberActivity activity);
  // For a member that exits: handles requests until the state after `applied`, or a later one, is
  // in the save area, or the agent requests none. Meanwhile another member may copy the same state
  // or an older one.
  [[nodiscard]] base::Status settle(Participant& self, State& state, proto::Step applied,
                                    const Checkpointing& options, SavePlan* plan);

 private:
  [[nodiscard]] base::Status answer_once(Participant& self, State& state, proto::Step applied,
                                         const Checkpointing& options, SavePlan* plan, bool* again);

  std::uint32_t answered_ = ~0U;  // number of the last request that this member has handled
  std::uint32_t crossed_ = ~0U;   // number of a request during whose copy another save was made
};

// True if the state after the last step, `applied`, is neither written nor being written, and is
// newer than that of step `begun`, with which this member began. A failed write counts as not
// written, since there may be room by now.
[[nodiscard]] bool save_is_due(Participant& self, proto::Step applied, proto::Step begun,
                               const Checkpointing& options);

// The wait of finish() for a disk: ends after `limit` without progress of the writer.
class DiskTimeout {
 public:
  explicit DiskTimeout(base::Duration limit) : limit_(limit) {}
  // `moved` is the writer's progress counter. The limit counts from the first call.
  [[nodiscard]] bool over(base::TimePoint now, std::uint64_t moved);

 private:
  const base::Duration limit_;
  std::optional<base::TimePoint> since_;
  std::uint64_t moved_ = 0;
};

// Call in a collective section of all members, `all`, after the last step: rank 0 copies the state
// after `applied` if save_is_due(). It first waits for the save before as long as the writer
// makes progress, and tells the agent which step must be saved. `as_left`: `state` is unchanged
// since the training loop ended, so that a failed save of the last step can be made again.
// kRevoked: run the section again.
[[nodiscard]] base::Status save_what_is_due(Participant& self, State& state, proto::Step applied,
                                            proto::Step begun, const Checkpointing& options,
                                            SavePlan* plan, collective::Communicator& all,
                                            base::TimePoint deadline, bool as_left);

}  // namespace regroup::elastic
