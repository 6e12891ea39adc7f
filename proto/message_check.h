// Checks decoded messages: consistent sizes, numbers in range. decode() of proto/wire.h applies
// them to every message, so its callers never see an impossible World or report.
#pragma once

#include "base/status.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::proto {

// Ok if the generation is >= 1, members and their slots are unique, at least one member has the
// state, the plan has V slots and positions are valid; else kDataLoss that names the fault.
[[nodiscard]] base::Status check(const World& world);
// The same for messages between agents, coordinator and control commands. Mistakes of users and
// training programs (in Join, ResizeRequest, member ids) pass: their receivers reply to them.
[[nodiscard]] base::Status check(const Body& body);

// True if `seal` can exist. A member may write anything into its slot, so the agent reports only
// such seals.
[[nodiscard]] bool makes_sense(const Seal& seal);

}  // namespace regroup::proto
