// The doorbell: the one word on which a member sleeps; a pure counter. The ringer writes data or
// state, then increments the count. The sleeper reads the count, checks its condition, then waits
// while the count is what it read. So no wake-up is lost, and there is no bit to clear.
//
// Templates over a policy (tests/model/ runs this code under a scheduler that tries every
// interleaving). A policy has `Atomic<T>`, `wait(word, seen, deadline)`, `wake(word)`, `now()`,
// `relax(attempt)`; RealPolicy is the shipped one.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace regroup::shmem {

template <class P>
struct Doorbell {
  typename P::template Atomic<std::uint32_t> count{0};
  typename P::template Atomic<std::uint32_t> sleeping{0};  // lets a ringer skip the system call
};

// Any thread of any process on the host calls this after the store that the sleeper waits for.
template <class P>
void ring(Doorbell<P>& bell) {
  bell.count.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleeping.load(std::memory_order_seq_cst) != 0) P::wake(bell.count);
}

// ring() for use after a sequentially consistent store. Without a sleeper it does not write the
// bell, so the bell's cache line stays valid in other cores. Either this load sees the sleeper, or
// the sleeper's second check sees the store.
template <class P>
void ring_if_asleep(Doorbell<P>& bell) {
  if (bell.sleeping.load(std::memory_order_seq_cst) != 0) ring(bell);
}

// Sleeps until `ready()` is true or `deadline` has passed; returns the last result of `ready()`.
// If ringers use ring_if_asleep(), the loads in `ready` must be sequentially consistent. Only the
// owner of the bell calls this.
template <class P, class Ready>
[[nodiscard]] bool wait_until(Doorbell<P>& bell, Ready ready, base::TimePoint deadline) {
  for (unsigned attempt = 0;; ++attempt) {
    const std::uint32_t seen = bell.count.load(std::memory_order_acquire);
    if (ready()) return true;
    if (P::relax(attempt)) continue;
    if (P::now() >= deadline) return false;
    bell.sleeping.store(1, std::memory_order_seq_cst);
    const bool came = ready();
    if (!came) P::wait(bell.count, seen, deadline);
    bell.sleeping.store(0, std::memory_order_relaxed);
    if (came) return true;
  }
}

// Futexes between processes.
struct RealPolicy {
  template <class T>
  using Atomic = std::atomic<T>;

  static void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, base::TimePoint deadline);
  static void wake(std::atomic<std::uint32_t>& word);
  [[nodiscard]] static base::TimePoint now() { return std::chrono::steady_clock::now(); }
  // Called before sleeping; true: check the condition again. Yields a few times: with more members
  // than cores, that is faster than any spinning.
  [[nodiscard]] static bool relax(unsigned attempt);
};

}  // namespace regroup::shmem
