// State into the arena's save area, from where the agent brings it to the disk; and out of a checkpoint.
// docs/design/checkpoint.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/world.h"
#include "elastic/participant.h"
#include "elastic/save_target.h"
#include "elastic/state.h"

namespace regroup::elastic {

// Of the first World's checkpoint, and of when the next is due.
struct Checkpointing {
  core::Step every = 0;            // steps; 0: none are made
  std::string resume_from;         // folder of the checkpoint that the job goes on from; empty: none
  std::string model, fingerprint;  // as declared at the join, without the number of epochs
  std::string resume_local = {};   // where this host may have the same one; empty: nowhere
  std::string job = {};            // whose directory that is in
  bool compared = false;  // a snapshot is complete only when confirm_save() says that the states are equal
};

// Where in the save area this member's part of a state goes, told before the step that makes that state; and
// what became of it. Tensors only: bytes may be text that the step makes longer.
struct SavePlan {
  struct Part {
    SaveTarget target;
    std::span<const std::byte> tensor;  // as it lay before the step
    bool saved = false;                 // the step has filled the target
  };
  struct Place {
    std::string name;
    std::uint64_t at = 0, bytes = 0;  // in the save area
  };
  core::Step step = 0;
  std::vector<Part> parts;
  std::vector<Place> places;  // of all tensors, also of those that are other members' to bring
  SaveCounts counts;          // of all snapshots
};

// At a step boundary, `applied` applied and the next step about to be opened: rank 0 wants the state after
// that one, if a checkpoint is due and the one before is on the disk; else it is made up for later. So all
// who commit that step know. Waits for nobody.
void want_save(Participant& self, core::Step applied, const Checkpointing& options);

// `step` is committed and about to be applied: plan->parts become what is wanted of it, none if nothing is.
[[nodiscard]] core::Status plan_save(Participant& self, State& state, core::Step step,
                                     const Checkpointing& options, SavePlan* plan);

// `state` has just had `applied` applied: copies this member's share of it, if it is wanted: the members of
// the node of rank 0 have equal ones. The last of them rings the agent. A share that does not come, since its
// member died, costs this snapshot; rank 0 of the next World wants another one. What `plan` says is saved is
// not copied, unless it looks another than the state by now.
[[nodiscard]] core::Status save_share(Participant& self, State& state, core::Step applied,
                                      const Checkpointing& options, SavePlan* plan = nullptr);

// Whether a snapshot of the state after `step`, which is open, is wanted on this node: the same for all
// members of it that vote for that step.
[[nodiscard]] bool save_wanted(Participant& self, core::Step step, const Checkpointing& options);

// The states of all members after `applied` are equal: a snapshot of it may go to the disk. Only rank 0 does
// something.
void confirm_save(Participant& self, core::Step applied, const Checkpointing& options);

// Copies the whole state after `applied`, if the save area's word still is `seen`, idle or wanted: this
// member alone, and whoever was to bring a share brings none any more.
[[nodiscard]] core::Status save_alone(Participant& self, State& state, core::Step applied,
                                      const Checkpointing& options, SavePlan* plan, std::uint64_t seen);

// Fills `state` with that of `step` from options.resume_from, or from the same one on this host if that
// answers; is it damaged, and its directory the job's, it is set aside. kDataLoss, kNotFound: damaged or gone
// since the launcher verified it. kInvalidArgument: of another model.
[[nodiscard]] core::Status load_checkpoint(Participant& self, State& state, core::Step step,
                                           const Checkpointing& options);

}  // namespace regroup::elastic
