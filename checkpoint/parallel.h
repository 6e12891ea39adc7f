// Runs work in several threads.
#pragma once

#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace regroup::checkpoint {

// Number of cores that this thread may use. More threads than that would evict each other's caches.
[[nodiscard]] inline unsigned usable_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    return static_cast<unsigned>(CPU_COUNT(&allowed));
  return std::max(1U, std::thread::hardware_concurrency());  // more than 1,024 of them
}

// Calls `work` in up to `threads` threads, including the caller's, and returns when all calls have
// returned. The new threads block signals sent to the process, so that its own threads handle them.
template <class Work>
void run_parallel(std::uint64_t threads, const Work& work) {
  std::vector<std::jthread> others;
  if (threads > 1) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL})
      ::sigdelset(&all, own);  // raised by the thread itself
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (std::uint64_t i = 1; i < threads; ++i) others.emplace_back([&work] { work(); });
    } catch (const std::system_error&) {  // thread limit of the user: go on with fewer
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  work();
}

}  // namespace regroup::checkpoint
