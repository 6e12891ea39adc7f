// Forwards the rings of a doorbell to a thread that sleeps in poll(): a second thread sleeps on the
// doorbell and calls `wake` when it rings while the first thread is asleep.
//
// No ring is lost. The sleeper first sets `asleep_`, then compares the count of the doorbell with
// the count that it read before it last checked for work. The forwarding thread first reads the
// count, then `asleep_`. So in any interleaving, at least one of the two threads sees the ring.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ucx {

class DoorbellForwarder {
 public:
  using Bell = shmem::Doorbell<shmem::RealPolicy>;

  // Starts the second thread, which calls `wake`. `bell` and what `wake` uses must outlive this.
  DoorbellForwarder(Bell& bell, std::function<void()> wake);
  ~DoorbellForwarder();
  DoorbellForwarder(const DoorbellForwarder&) = delete;
  DoorbellForwarder& operator=(const DoorbellForwarder&) = delete;

  // While a SleepScope exists, a ring calls `wake`. The thread that owns the doorbell creates one
  // around its sleep.
  class SleepScope {
   public:
    explicit SleepScope(DoorbellForwarder& forwarder) : forwarder_(forwarder) {
      forwarder_.asleep_.store(true, std::memory_order_seq_cst);
      forwarder_.bell_.sleeping.store(1, std::memory_order_seq_cst);
    }
    ~SleepScope() {
      forwarder_.bell_.sleeping.store(0, std::memory_order_relaxed);
      forwarder_.asleep_.store(false, std::memory_order_relaxed);
    }
    SleepScope(const SleepScope&) = delete;
    SleepScope& operator=(const SleepScope&) = delete;

    // True if the bell has rung since `seen` was read. Must be the last check before the sleep: an
    // earlier call of `wake` may have had no effect.
    [[nodiscard]] bool has_rung(std::uint32_t seen) const {
      return forwarder_.bell_.count.load(std::memory_order_seq_cst) != seen;
    }

   private:
    DoorbellForwarder& forwarder_;
  };

 private:
  void run();

  Bell& bell_;
  const std::function<void()> wake_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace regroup::collective::ucx
