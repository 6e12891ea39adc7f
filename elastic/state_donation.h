// Copies the state of a step to joining members through the arena's snapshot: each donor writes a
// share with a CRC32C per chunk; the joining member loads them and proves its own state by the same
// CRCs. docs/design/interfaces.md.
#pragma once

#include "base/status.h"
#include "elastic/participant.h"
#include "regroup/session.h"

namespace regroup::elastic {

// Waits until no joining member of an earlier generation reads this host's snapshot, which may not
// be written before.
[[nodiscard]] base::Status no_old_readers(Participant& self);

// Donor: writes its share of `state` into the snapshot if a joining member, on any host, needs it.
// `state` must have everything up to world.resume applied. kRevoked, kLeft: as Participant::wait().
// kResourceExhausted: the state has outgrown its capacity.
[[nodiscard]] base::Status donate_state(Participant& self, State& state);

// Joining member: loads each donor's share as soon as it is written, and checks the result.
// kDataLoss: a byte differs.
[[nodiscard]] base::Status adopt_state(Participant& self, State& state);

// Call after applying `applied`: if a state transfer (docs/design/catch_up.md) requests the
// snapshot of this step, writes this member's share of the state into it.
[[nodiscard]] base::Status donate_to_transfer(Participant& self, State& state, proto::Step applied);

// Learner: loads the snapshot that its slot's `transfer` word names, checks it and returns its
// step. kUnavailable: the transfer was cancelled, and `state` is a mixture of two states.
// kDataLoss: a byte differs. The agent learns of both errors.
[[nodiscard]] base::Result<proto::Step> load_snapshot(Participant& self, State& state);
// True if a kept result still has the CRCs that the agent wrote.
[[nodiscard]] bool result_is_sound(const shmem::Arena& arena, proto::Step step);

}  // namespace regroup::elastic
