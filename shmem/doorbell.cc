// The futex calls behind the doorbell. Deadlines are absolute CLOCK_MONOTONIC (FUTEX_WAIT_BITSET).
#include "shmem/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace regroup::shmem {
namespace {

// 16 ranks on 2 cores, 64 B: yielding at once 16 us, spinning first 409 us.
constexpr unsigned kYields = 3;

}  // namespace

void RealPolicy::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                      base::TimePoint deadline) {
  const auto since = deadline.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  timespec at{};
  at.tv_sec = seconds.count();
  at.tv_nsec = (since - seconds).count();
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &at, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void RealPolicy::wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool RealPolicy::relax(unsigned attempt) {
  if (attempt >= kYields) return false;
  ::sched_yield();
  return true;
}

}  // namespace regroup::shmem
