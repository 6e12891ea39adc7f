// Time comes through this door only: a monotonic clock, and a manual one for tests. Wall-clock time decides
// nothing.
#pragma once

#include <chrono>

namespace regroup::core {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary start; only differences mean anything. CLOCK_MONOTONIC, so comparable between
// processes.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;  // any thread
};

class SystemClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// Stands still until told otherwise. Not thread-safe.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace regroup::core
