// How a member gives up its slot while its thread lives on. docs/reference/formats/arena.md.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "shmem/member_slot.h"

namespace regroup::shmem {

inline std::atomic<std::uint32_t>& owner_word(MemberSlot& slot) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof slot.alive.__data.__lock);
  return reinterpret_cast<std::atomic<std::uint32_t>&>(slot.alive.__data.__lock);
}

// Member: from now on this thread, which has claimed the slot, stores nothing to a result, a
// snapshot or a leaf. The agent sees the member's death, as at the end of the thread. Does nothing
// in another thread.
inline void abandon(MemberSlot& slot) {
  // Off the kernel's list of the thread's robust mutexes. This wakes the agent's watcher, too
  // early: it finds a free mutex, and sleeps again.
  if (::pthread_mutex_unlock(&slot.alive) != 0) return;
  owner_word(slot).fetch_or(FUTEX_OWNER_DIED, std::memory_order_acq_rel);
  ::syscall(SYS_futex, &owner_word(slot), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

[[nodiscard]] inline bool is_abandoned(MemberSlot& slot) {
  const std::uint32_t word = owner_word(slot).load(std::memory_order_acquire);
  return (word & FUTEX_OWNER_DIED) != 0 && (word & FUTEX_TID_MASK) == 0;
}

}  // namespace regroup::shmem
