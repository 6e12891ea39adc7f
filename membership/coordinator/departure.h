// How members leave a job that goes on: on notice, with their host, or because the job was made
// smaller. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "membership/coordinator/member_table.h"
#include "proto/world.h"

namespace regroup::membership {

// The next step of a member that is to leave.
enum class Leave : std::uint8_t {
  kDismiss,  // it is in no World, so nothing waits for it
  kWait,     // the job needs it until a successor has joined, or has the state
  kNotice,   // it leaves at its next step boundary
  kDrained,  // it stands at one, and the next World is without it
};

// What a departure depends on, besides the members.
struct LeaveTerms {
  std::uint32_t min = 1;             // of members in a World
  bool room_for_successor = false;   // both fit into the World, and into the slots or starting now
  bool successor_may_start = false;  // hosts have slots, and lost members are replaced
};
[[nodiscard]] Leave how_to_leave(const MemberInfo& member, const MemberTable& members,
                                 const LeaveTerms& terms);

// The members that are too many if `desired` are to stay, and `spares` more outside the World, in
// the order in which they leave: those that have not joined, then those that wait to be admitted,
// the newest first, and then members of the World from the highest rank down, without spares.
[[nodiscard]] std::vector<proto::MemberId> surplus(const MemberTable& members,
                                                   std::uint32_t desired, std::uint32_t spares);

// The members that are too many on `node`, of which the allocator leaves `slots` slots to the job:
// the newest ones in ascending order, without those that leave already.
[[nodiscard]] std::vector<proto::MemberId> beyond_slots(const MemberTable& members,
                                                        proto::NodeId node, std::uint32_t slots);

}  // namespace regroup::membership
