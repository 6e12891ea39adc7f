// Copies a session's state into the arena's save area, from where the agent writes it to disk, and
// loads it from a checkpoint. docs/design/checkpoint_in_a_job.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "elastic/participant.h"
#include "proto/world.h"
#include "regroup/state.h"

namespace regroup::elastic {

// The checkpoint to resume from, and when the next one is due.
struct Checkpointing {
  proto::Step every = 0;           // interval in steps; 0: no checkpoints
  std::string resume_from;         // folder of the checkpoint to resume from; empty: none
  std::string model, fingerprint;  // as declared at the join, without the number of epochs
  std::string resume_local = {};   // where this host may have a copy of it; empty: nowhere
  std::string job = {};            // the job that owns the directory of that copy
  bool compared = false;  // a snapshot counts only after confirm_save(): the states are equal
};

// Where in the save area this member's part of a state goes, planned before the step that makes
// that state, so that the optimizer can write it; and what it has written. Tensors only: text may
// grow in the step.
struct SavePlan {
  struct Part {
    SaveTarget target;
    std::span<const std::byte> tensor;  // its memory before the step
    bool saved = false;                 // the step has filled the target
  };
  struct Place {
    std::string name;
    std::uint64_t at = 0, bytes = 0;  // in the save area
  };
  proto::Step step = 0;
  std::vector<Part> parts;
  std::vector<Place> places;  // of all tensors, those that other members copy included
  SaveCounts counts;          // of all snapshots
};

// Call at a step boundary, after `applied` and before the next step is opened. Rank 0 requests a
// snapshot of the state after the next step if a checkpoint is due and the one before is on disk;
// if not, it is requested later. Every member that commits that step so sees the request. Never
// blocks. `next_is_last`: no step follows the next one, so a checkpoint of it is due whatever the
// interval.
void request_snapshot(Participant& self, proto::Step applied, const Checkpointing& options,
                      bool next_is_last = false);

// Call when `step` is committed and about to be applied: sets plan->parts to this member's share of
// the requested snapshot, or to none.
[[nodiscard]] base::Status plan_save(Participant& self, State& state, proto::Step step,
                                     const Checkpointing& options, SavePlan* plan);

// Call when `applied` has just been applied to `state`: copies this member's share of a requested
// snapshot. The members on rank 0's node have equal shares, and the last one rings the agent. If a
// member dies before it has copied its share, this snapshot is lost, and rank 0 of the next World
// requests another. Parts that `plan` marks as saved are not copied, unless samples of them differ
// from the state.
[[nodiscard]] base::Status save_share(Participant& self, State& state, proto::Step applied,
                                      const Checkpointing& options, SavePlan* plan = nullptr);

// True if a snapshot of the state after the open `step` is requested on this node. All members of
// the node that vote for the step get the same answer.
[[nodiscard]] bool save_wanted(Participant& self, proto::Step step, const Checkpointing& options);

// Call when the states of all members after `applied` were found equal: its snapshot may go to
// disk. Has an effect on rank 0 only.
void confirm_save(Participant& self, proto::Step applied, const Checkpointing& options);

// Copies the whole state after `applied` by this member alone, if the save area's word is still
// `seen` (idle or requested). Members that were to copy shares of a requested snapshot then copy
// none.
[[nodiscard]] base::Status save_alone(Participant& self, State& state, proto::Step applied,
                                      const Checkpointing& options, SavePlan* plan,
                                      std::uint64_t seen);

// Loads the state of `step` from the copy of the checkpoint on this host if its file system
// answers, else from options.resume_from. A damaged copy in a directory of this job is moved aside.
// kDataLoss, kNotFound: the checkpoint was damaged or removed since the launcher verified it.
// kInvalidArgument: it is of another model.
[[nodiscard]] base::Status load_checkpoint(Participant& self, State& state, proto::Step step,
                                           const Checkpointing& options);

}  // namespace regroup::elastic
