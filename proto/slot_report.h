// What an agent reports about a member slot of its arena.
#pragma once

#include <vector>

#include "proto/member_state.h"
#include "proto/world.h"

namespace regroup::proto {

// Slot of a SlotReport (only in a HelloReply) of a member that runs but has not joined.
inline constexpr SlotIndex kNoSlot = 0xffff;

// A member slot, as its agent reads it without the member's help.
struct SlotReport {
  MemberId member = 0;
  SlotIndex slot = 0;
  bool alive = true;
  bool finished = false;
  StateWord state;
  Step step = 0;      // progress, for status only
  double loss = 0.0;  // NaN if none
  std::vector<Seal> seals;
  bool proved = false;    // a joining member that has copied the state already
  Step caught_up_to = 0;  // of a learner that has caught up: last step that it may have applied
  bool operator==(const SlotReport&) const = default;
};

}  // namespace regroup::proto
