// State of a step to newcomers, through the snapshot part of the arena: each donor copies a share, with a
// CRC32C per chunk; the newcomer takes them over and proves its own state by the same CRCs.
// docs/design/interfaces.md.
#pragma once

#include "core/status.h"
#include "elastic/participant.h"
#include "elastic/session.h"

namespace regroup::elastic {

// Waits until no newcomer of an earlier generation reads the snapshot of this node any more: only then may
// somebody write it.
[[nodiscard]] core::Status no_old_readers(Participant& self);

// Donor: writes its share of `state`, if it is wanted here or elsewhere. `state` has everything up to
// world.resume applied. kRevoked, kLeft, or kResourceExhausted if the state outgrew its capacity.
[[nodiscard]] core::Status donate_state(Participant& self, State& state);

// Newcomer: takes each donor's share as it comes and proves what it has. kDataLoss if a byte differs.
[[nodiscard]] core::Status adopt_state(Participant& self, State& state);

// A member that has applied the step of a state transfer (docs/design/learners.md) writes its part of the
// state for it.
[[nodiscard]] core::Status donate_to_transfer(Participant& self, State& state, core::Step applied);

// Learner: takes the state that its line's `transfer` names and proves it. kUnavailable: the state transfer
// was called off, `state` is a mixture; kDataLoss: a byte differs, which the agent is told.
[[nodiscard]] core::Result<core::Step> load_snapshot(Participant& self, State& state);
// That a kept result has the bytes that the agent wrote.
[[nodiscard]] bool result_is_sound(const core::Arena& arena, core::Step step);

}  // namespace regroup::elastic
