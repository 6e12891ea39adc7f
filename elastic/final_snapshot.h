// The last snapshot of a job, which one member brings alone: before an end that was announced the agent asks
// for it, and behind the last step of a training it may be due. docs/design/checkpoint.md.
#pragma once

#include <cstdint>
#include <optional>

#include "collective/communicator.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/world.h"
#include "elastic/checkpointing.h"
#include "elastic/participant.h"
#include "elastic/state.h"

namespace regroup::elastic {

// Where a member stands that is asked for its state: all of it is that after the last step it has applied.
enum class MemberActivity {
  kAtBoundary,  // it leaves, and opens nothing more
  kWaiting,     // for others, with a step open or between two generations
};

// One member's answers. Used by the training thread.
class FinalSnapshot {
 public:
  // The agent asks for the state of a member that stands so, and this one has not answered yet.
  [[nodiscard]] bool wanted(Participant& self, core::Step applied, const Checkpointing& options,
                            MemberActivity activity) const;
  // Copies the state after `applied` into the save area, unless that step is saved already or another member
  // brings it. Waits until an older one is on the disk, at most for as long as the agent said.
  [[nodiscard]] core::Status answer(Participant& self, State& state, core::Step applied,
                                    const Checkpointing& options, SavePlan* plan, MemberActivity activity);
  // Of a member that goes: answers until the state after `applied`, or a later one, is in the save area or
  // the agent wants none. Another member may be copying, or may have brought, an older one, or the same.
  [[nodiscard]] core::Status settle(Participant& self, State& state, core::Step applied,
                                    const Checkpointing& options, SavePlan* plan);

 private:
  [[nodiscard]] core::Status answer_once(Participant& self, State& state, core::Step applied,
                                         const Checkpointing& options, SavePlan* plan, bool* again);

  std::uint32_t answered_ = ~0U;  // number of the last request ...
  std::uint32_t crossed_ = ~0U;   // ... and of one whose copy another snapshot has crossed
};

// A checkpoint has become due after step `begun` that is neither written nor on its way to the disk (a write
// that failed may be tried again: there may be room), and `applied` is the last step.
[[nodiscard]] bool save_is_due(Participant& self, core::Step applied, core::Step begun,
                               const Checkpointing& options);

// How long finish() waits for a disk: until nothing has moved there for `limit`.
class DiskTimeout {
 public:
  explicit DiskTimeout(core::Duration limit) : limit_(limit) {}
  // `moved` counts signs of life of the process that writes. The limit counts from the first call.
  [[nodiscard]] bool over(core::TimePoint now, std::uint64_t moved);

 private:
  const core::Duration limit_;
  std::optional<core::TimePoint> since_;
  std::uint64_t moved_ = 0;
};

// In a region of all members, `all`, behind the last step: the first of them copies the state after
// `applied`, if a checkpoint has become due after step `begun` that is neither written nor on its way to the
// disk, or could not be written. It waits for the one before as long as its writer moves, and tells the agent
// up to which step it counts on it. `as_left`: `state` is as the loop left it, so that a snapshot of the last
// step that has failed can be made again. kRevoked: the region is to be run again.
[[nodiscard]] core::Status save_what_is_due(Participant& self, State& state, core::Step applied,
                                            core::Step begun, const Checkpointing& options, SavePlan* plan,
                                            collective::Communicator& all, core::TimePoint deadline,
                                            bool as_left);

}  // namespace regroup::elastic
