// The doorbell: the one word a member sleeps on. A pure counter: the ringer writes data or state,
// then rings; the sleeper reads the count, checks its condition, then waits on the count it read.
// There is no bit to clear.
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

// Any thread of any process on the node, after the store that the sleeper waits for.
template <class P>
void ring(Doorbell<P>& bell) {
  bell.count.fetch_add(1, std::memory_order_seq_cst);
  if (bell.sleeping.load(std::memory_order_seq_cst) != 0) P::wake(bell.count);
}

// ring() for use after a sequentially consistent store: does not write the bell while nobody sleeps
// on it, so its cache line is not invalidated. Either this sees the sleeper, or the sleeper's
// second check sees the store.
template <class P>
void ring_if_asleep(Doorbell<P>& bell) {
  if (bell.sleeping.load(std::memory_order_seq_cst) != 0) ring(bell);
}

// Sleeps until `ready()` is true or `deadline` has passed; returns the last answer of `ready`,
// whose loads are sequentially consistent where ring_if_asleep() is used. Owner of the bell only.
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
  // Before sleeping: true means "check again". A few yields; with more members than cores that
  // beats any spin.
  [[nodiscard]] static bool relax(unsigned attempt);
};

}  // namespace regroup::shmem
