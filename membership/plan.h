// The plan of a World's open step: the slot that holds or computes each leaf. Pure.
// docs/design/architecture.md section 4, rules 3 and 5.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/slot_report.h"
#include "proto/world.h"

namespace regroup::membership {

// Returns the plan of step `step`: the slot that holds or computes each leaf.
// - A leaf sealed on a node of the next World stays in its slot, even if that slot's owner is dead.
// - A leaf that a survivor was to compute stays with that survivor.
// - The leaves of lost members go, in contiguous runs, to the survivors with the fewest leaves
//   left.
// - A member with needs_state or replays gets none; at least one member must have neither.
// - If a member's buffers cannot hold its leaves, all members get even shares and seals elsewhere
//   are void.
// `before`: the owner of each leaf until now; empty for the first World, which gets even shares.
[[nodiscard]] std::vector<proto::SlotId> plan_leaves(
    proto::Step step, std::uint32_t shards, const std::vector<proto::SlotId>& before,
    const std::vector<proto::WorldMember>& next,
    const std::map<proto::NodeId, std::vector<proto::SlotReport>>& slots);

}  // namespace regroup::membership
