// Sleeping until another thread changes a word. The system call orders nothing that ThreadSanitizer
// sees: only the accesses of the word do, with the memory orders that their callers choose. A mutex
// with a condition variable would also order the stream's work before the next call of a host
// thread that waits for nothing, and so hide the races that the fake is there to show.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace regroup::fakes::cuda {

// Returns when `word` is not `seen`, when it is woken, after `milliseconds`, or early.
inline void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                        long milliseconds) {
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

inline void wake_all(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace regroup::fakes::cuda
