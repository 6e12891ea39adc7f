// Reads a member's words in the arena when it dies, since its slot may have another owner later.
#include "membership/agent/local_members.h"

#include <algorithm>
#include <cmath>

namespace regroup::membership {

LocalMember* LocalMembers::find(proto::MemberId id) {
  const auto found = members_.find(id);
  return found != members_.end() ? &found->second : nullptr;
}

const LocalMember* LocalMembers::find(proto::MemberId id) const {
  const auto found = members_.find(id);
  return found != members_.end() ? &found->second : nullptr;
}

bool LocalMembers::mark_dead(proto::MemberId id, const shmem::Arena& arena) {
  LocalMember& member = members_[id];
  if (member.is_dead()) return false;
  member.loss.member = id;
  member.loss.joined = member.is_ready();
  member.life = LocalMember::Life::kDead;
  if (!member.slot) return true;
  shmem::MemberSlot& words = arena.member_slot(*member.slot);
  member.loss.finished = words.finished.load(std::memory_order_acquire) != 0;
  member.loss.step = words.step.load(std::memory_order_relaxed);
  const double loss = words.loss.load(std::memory_order_relaxed);
  if (std::isfinite(loss)) member.loss.loss = loss;
  words.dead.store(1, std::memory_order_release);
  shmem::ring_all(arena);
  return true;
}

LocalMember* LocalMembers::mark_reaped(proto::MemberId id, std::int32_t exit_code,
                                       std::int32_t signal, const shmem::Arena& arena) {
  LocalMember& member = members_[id];
  if (member.is_reaped()) return nullptr;
  (void)mark_dead(id, arena);
  member.life = LocalMember::Life::kReaped;
  member.loss.reaped = true;
  member.loss.exit_code = exit_code;
  member.loss.signal = signal;
  return &member;
}

bool LocalMembers::none_holds_a_slot() const {
  return std::ranges::all_of(members_, [](const auto& m) {
    return m.second.is_reaped() || (!m.second.slot && !m.second.awaits_line);
  });
}

void LocalMembers::drop_slots() {
  for (auto& [id, member] : members_) member.slot.reset();
}

}  // namespace regroup::membership
