// Copies a session's state into the arena's save area, for the agent to write to disk, and loads it
// from a checkpoint. docs/design/checkpoint_in_a_job.md.
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
  proto::Step every = 0;    // interval in steps; 0: no checkpoints
  std::string resume_from;  // folder of the checkpoint to resume from; empty: none
  // As declared at the join, without the number of epochs.
  std::string model;
  std::string fingerprint;
  std::string resume_local = {};  // directory where this host may have a copy of it; "": none
  std::string job = {};           // the job that owns that directory
  bool compared = false;          // a save counts only once confirm_save() says states are equal
};

// The places in the save area of this member's part of a state. Planned before the step that
// computes that state, so that the optimizer can write it there; records what it has written. Only
// tensors, since text may grow in the step.
struct SavePlan {
  struct Part {
    SaveTarget target;
    std::span<const std::byte> tensor;  // its memory before the step
    bool saved = false;                 // the step has filled the target
  };
  struct Place {
    std::string name;
    // In the save area.
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };
  proto::Step step = 0;
  std::vector<Part> parts;
  std::vector<Place> places;  // of all tensors, including those that other members copy
  SaveCounts counts;          // over all saves
};

// Call at a step boundary, after `applied` and before opening the next step. Rank 0 requests a
// save of the state after the next step if a checkpoint is due and the previous one is on disk;
// otherwise a later call does. So every member that commits that step sees the request. Never
// blocks. `next_is_last`: the next step is the last, so a checkpoint of it is due whatever the
// interval.
void request_save(Participant& self, proto::Step applied, const Checkpointing& options,
                  bool next_is_last = false);

// Call when `step` is committed and about to be applied: sets plan->parts to this member's share of
// the requested save, or to none.
[[nodiscard]] base::Status plan_save(Participant& self, State& state, proto::Step step,
                                     const Checkpointing& options, SavePlan* plan);

// Call when `applied` has just been applied to `state`: copies this member's share of a requested
// save. The members on rank 0's host have equal shares; the last one to copy rings the agent.
// If a member dies before it has copied its share, the save is lost, and rank 0 of the next
// World requests another. Does not copy parts that `plan` marks as saved, unless samples of them
// differ from the state.
[[nodiscard]] base::Status save_share(Participant& self, State& state, proto::Step applied,
                                      const Checkpointing& options, SavePlan* plan = nullptr);

// True if a save of the state after the open `step` is requested on this host. All members of
// the host that vote for the step get the same answer.
[[nodiscard]] bool save_wanted(Participant& self, proto::Step step, const Checkpointing& options);

// Call when the states of all members after `applied` were found equal: releases the save of
// that step for writing. Has an effect on rank 0 only.
void confirm_save(Participant& self, proto::Step applied, const Checkpointing& options);

// Copies the whole state after `applied`, if the save area's word is still `seen` (idle or
// requested). Other members then copy no shares of a requested save.
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
