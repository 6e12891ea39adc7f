// Exceptions of calls, and threads that cannot be started.
#include "collective/ps/store_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <new>
#include <system_error>
#include <thread>

#include "collective/ps/backend.h"
#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing::store_threads {
namespace {

constexpr std::array<std::size_t, 3> kAll{0, 1, 2};

// Store 0 is called in the caller's thread.
TEST(PsStoreThreads, ExceptionsComeOnceAllCallsHaveEnded) {
  StoreThreads threads(kAll.size());
  for (const std::size_t throwing : kAll) {
    std::atomic<bool> thrown = false;
    std::atomic<int> ended = 0;
    const StoreThreads::Call call = [&](std::size_t store) {
      if (store == throwing) {
        thrown = true;
        throw std::bad_alloc();
      }
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++ended;
    };
    EXPECT_THROW(threads.run(kAll, call), std::bad_alloc) << throwing;
    EXPECT_EQ(ended, 2) << throwing;
    // It is thrown once.
    std::atomic<int> calls = 0;
    threads.run(kAll, [&](std::size_t) { ++calls; });
    EXPECT_EQ(calls, 3) << throwing;
  }
}

// In a child: leaves it room for so many threads, those it has included. False: it cannot.
bool limit_threads(rlim_t threads) {
  constexpr uid_t kNobody =
      54'321;  // the limit is not for root, and counts all of a user's threads
  const rlimit limit{threads, threads};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) return false;
  return ::geteuid() != 0 || ::setresuid(kNobody, kNobody, kNobody) == 0;
}
bool blocks_signals() {
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return ::sigismember(&now, SIGINT) != 0 || ::sigismember(&now, SIGTERM) != 0;
}

TEST(PsStoreThreads, AThreadThatCannotBeStartedIsAnError) {
  Child child([] {
    if (!limit_threads(3)) return 1;
    try {
      const StoreThreads threads(64);
      return 2;
    } catch (const std::system_error&) {
    }
    return blocks_signals() ? 3 : 0;
  });
  EXPECT_EQ(child.end(), 0);
}

TEST(PsStoreThreads, AClientWithoutAThreadIsRefused) {
  const Served served;
  Child child([&] {
    if (!limit_threads(1)) return 1;
    const ClientOptions one{.memory = to_text(served.memory.get()), .client = 1, .deadline = kLong};
    const std::array<ClientOptions, 2> two{one, one};
    for (const auto& made : {Client::attach(one).status(), Client::attach(two).status()}) {
      if (made.code() != base::Code::kUnavailable) return 2;
      if (!made.message().starts_with("client: cannot start a thread: ")) return 3;
    }
    return blocks_signals() ? 4 : 0;
  });
  EXPECT_EQ(child.end(), 0);
}

}  // namespace
}  // namespace regroup::collective::ps::testing::store_threads
