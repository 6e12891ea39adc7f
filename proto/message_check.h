// Checks of decoded messages: consistent sizes, numbers in range. proto/wire.h applies them to
// everything that it decodes, so no reader meets a World or report that could not exist.
#pragma once

#include "base/status.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::proto {

// kDataLoss, naming the World and the fault, unless: generation >= 1, members and their slots are
// unique, a member has the state, the plan has V slots, positions are valid.
[[nodiscard]] base::Status check(const World& world);
// The same for messages between agents, coordinator and control commands. Errors of users and
// training programs (Join, ResizeRequest, member ids) are not refused here: they get an answer.
[[nodiscard]] base::Status check(const Body& body);

// True for a seal that can exist. The agent reports no other: a member can write anything into its
// slot.
[[nodiscard]] bool makes_sense(const Seal& seal);

}  // namespace regroup::proto
