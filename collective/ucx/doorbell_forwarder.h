// Lets a thread sleep in poll() and still hear its doorbell: a second thread sleeps on the bell, and calls
// `wake` when it rings while the first one is asleep.
//
// Nothing is lost: the sleeper says that it sleeps, then compares the count of the bell with the one it read
// before it looked around; the relay reads the count, then whether anybody sleeps. Whoever rings in between
// is seen by one of the two.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "core/clock.h"
#include "core/doorbell.h"

namespace regroup::collective {

class DoorbellForwarder {
 public:
  using Bell = core::Doorbell<core::RealPolicy>;

  // `bell` outlives it, as does what `wake`, called by the second thread, uses.
  DoorbellForwarder(Bell& bell, std::function<void()> wake);
  ~DoorbellForwarder();
  DoorbellForwarder(const DoorbellForwarder&) = delete;
  DoorbellForwarder& operator=(const DoorbellForwarder&) = delete;

  // Owner of the bell, for as long as it may be asleep: a ring calls `wake`.
  class SleepScope {
   public:
    explicit SleepScope(DoorbellForwarder& relay) : forwarder_(relay) {
      forwarder_.asleep_.store(true, std::memory_order_seq_cst);
      forwarder_.bell_.sleeping.store(1, std::memory_order_seq_cst);
    }
    ~SleepScope() {
      forwarder_.bell_.sleeping.store(0, std::memory_order_relaxed);
      forwarder_.asleep_.store(false, std::memory_order_relaxed);
    }
    SleepScope(const SleepScope&) = delete;
    SleepScope& operator=(const SleepScope&) = delete;

    // True if the bell has rung since `seen` was read. Ask last before sleeping: what `wake` did earlier may
    // be lost.
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
  std::jthread thread_;  // last: the rest is there before it starts
};

}  // namespace regroup::collective
