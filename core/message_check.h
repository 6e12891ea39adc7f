// Sense of what was received: sizes that fit each other, numbers in their ranges. core/wire.h asks these two
// of everything that it decodes, so that no reader meets a World or a report that could not exist.
#pragma once

#include "core/message.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::core {

// kDataLoss with a sentence that names the World and what is wrong: a generation from 1 on, members that are
// there once each on a line each, one of them with the state, a plan of V seats, positions that exist.
[[nodiscard]] Status check(const World& world);
// The same for what agents, coordinator and control commands tell each other. What a user or a training
// program may get wrong (Join, ResizeRequest, member ids) is not refused here: it gets an answer.
[[nodiscard]] Status check(const Body& body);

// A seal of leaves that can exist. The agent reports no other: a member can write anything into its line.
[[nodiscard]] bool makes_sense(const Seal& seal);

}  // namespace regroup::core
