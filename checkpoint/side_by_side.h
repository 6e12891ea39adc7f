// One piece of work by several threads, where this process has cores for them.
#pragma once

#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace regroup::checkpoint {

// That this thread may use, whatever the machine has: more threads only take each other's caches.
[[nodiscard]] inline unsigned cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    return static_cast<unsigned>(CPU_COUNT(&allowed));
  return std::max(1U, std::thread::hardware_concurrency());  // more than 1,024 of them
}

// Calls `work` in up to `threads` threads, this one among them, and returns when all have returned.
// The others leave what is sent to this process to its own threads.
template <class Work>
void side_by_side(std::uint64_t threads, const Work& work) {
  std::vector<std::jthread> others;
  if (threads > 1) {
    sigset_t all, before;
    ::sigfillset(&all);
    for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL})
      ::sigdelset(&all, own);  // of the thread that errs
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (std::uint64_t i = 1; i < threads; ++i) others.emplace_back([&work] { work(); });
    } catch (const std::system_error&) {  // no more threads for this user: those that are there do
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  work();
}

}  // namespace regroup::checkpoint
