// State into the arena's save area, from where the agent brings it to the disk; and out of a checkpoint.
// docs/design/checkpoint.md.
#pragma once

#include <string>

#include "core/status.h"
#include "core/world.h"
#include "elastic/participant.h"
#include "elastic/state.h"

namespace regroup::elastic {

// Of the first World's checkpoint, and of when the next is due.
struct Checkpointing {
  core::Step every = 0;            // steps; 0: none are made
  std::string resume_from;         // folder of the checkpoint that the job goes on from; empty: none
  std::string model, fingerprint;  // as declared at the join
};

// Rank 0: copies `state`, which has `applied` applied, into the save area, if a checkpoint is due and the one
// before is on the disk: else it is made up for later. Takes one copy of the memory and waits for nobody.
[[nodiscard]] core::Status save_if_due(Participant& self, State& state, core::Step applied,
                                       const Checkpointing& options);

// Fills `state` with that of `step` from options.resume_from. kDataLoss, kNotFound: damaged or gone since the
// launcher verified it. kInvalidArgument: of another model.
[[nodiscard]] core::Status load_checkpoint(Participant& self, State& state, core::Step step,
                                           const Checkpointing& options);

}  // namespace regroup::elastic
