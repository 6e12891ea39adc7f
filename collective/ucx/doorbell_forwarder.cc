// The forwarding thread blocks all signals: the threads of the program handle them.
#include "collective/ucx/doorbell_forwarder.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): pthread_sigmask is not in <csignal>

#include <utility>

#include "base/clock.h"

namespace regroup::collective::ucx {

DoorbellForwarder::DoorbellForwarder(Bell& bell, std::function<void()> wake)
    : bell_(bell), wake_(std::move(wake)) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DoorbellForwarder::~DoorbellForwarder() {
  stop_.store(true, std::memory_order_seq_cst);
  bell_.sleeping.store(1, std::memory_order_seq_cst);
  shmem::ring(bell_);
  thread_.join();
  bell_.sleeping.store(0, std::memory_order_relaxed);
}

void DoorbellForwarder::run() {
  constexpr std::chrono::hours kLong(1);
  std::uint32_t seen = bell_.count.load(std::memory_order_seq_cst);
  while (!stop_.load(std::memory_order_seq_cst)) {
    shmem::RealPolicy::wait(bell_.count, seen, base::SystemClock().now() + kLong);
    const std::uint32_t now = bell_.count.load(std::memory_order_seq_cst);
    if (std::exchange(seen, now) != now && asleep_.load(std::memory_order_seq_cst)) wake_();
  }
}

}  // namespace regroup::collective::ucx
