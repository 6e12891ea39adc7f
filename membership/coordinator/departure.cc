// Which members leave, and when.
#include "membership/coordinator/departure.h"

#include <algorithm>
#include <tuple>

namespace regroup::membership {
namespace {

// The staying members in `state`, in the order in which they leave.
std::vector<const MemberInfo*> newest_first(const MemberTable& members, MemberState state) {
  std::vector<const MemberInfo*> out;
  for (const auto& [id, r] : members.all()) {
    if (r.state == state && !r.leave_wanted) out.push_back(&r);
  }
  std::ranges::sort(out, [](const MemberInfo* a, const MemberInfo* b) {
    return std::tuple(a->rank, a->id) > std::tuple(b->rank, b->id);
  });
  return out;
}

}  // namespace

Leave how_to_leave(const MemberInfo& member, const MemberTable& members, const LeaveTerms& terms) {
  if (member.state != MemberState::kActive) return Leave::kDismiss;
  // The last member with the state stays until another has it, unless no other can come because all
  // hosts are being taken back.
  const bool successor_comes = members.count(MemberState::kStarting, MemberState::kWarm) > 0;
  if (members.holders() == 0 && (terms.successor_may_start || successor_comes)) return Leave::kWait;
  // A drained member does not vote and so holds the others up: it does not wait for a successor.
  if (member.drained) return Leave::kDrained;
  const bool too_few = members.staying_active() < terms.min;
  return too_few && terms.room_for_successor ? Leave::kWait : Leave::kNotice;
}

std::vector<proto::MemberId> surplus(const MemberTable& members, std::uint32_t desired,
                                     std::uint32_t spares) {
  std::vector<proto::MemberId> out;
  const auto take = [&](MemberState state, std::uint32_t count, std::uint32_t kept) {
    for (const MemberInfo* r : newest_first(members, state)) {
      if (count-- <= kept) return;
      out.push_back(r->id);
    }
  };
  const std::uint32_t active = members.staying_active();
  const std::uint32_t outside = std::max(desired, active) + spares;
  take(MemberState::kStarting, members.staying(), outside);
  take(MemberState::kWarm, members.staying() - static_cast<std::uint32_t>(out.size()), outside);
  take(MemberState::kActive, active, desired);
  return out;
}

std::vector<proto::MemberId> beyond_slots(const MemberTable& members, proto::NodeId node,
                                          std::uint32_t slots) {
  const auto state = [&](proto::MemberId id) { return members.find(id)->state; };
  std::vector<proto::MemberId> living;
  for (const proto::MemberId id : members.on_node(node)) {
    if (state(id) < MemberState::kLost) living.push_back(id);
  }
  living.erase(living.begin(),
               living.begin() + std::min<std::ptrdiff_t>(slots, std::ssize(living)));
  std::erase_if(living, [&](proto::MemberId id) {
    return members.find(id)->leave_wanted || state(id) > MemberState::kActive;
  });
  return living;
}

}  // namespace regroup::membership
