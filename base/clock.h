// The monotonic clock. Code that depends on time takes it as an argument, so that tests control it;
// nothing depends on wall-clock time.
#pragma once

#include <chrono>

namespace regroup::base {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary start; only differences mean anything. CLOCK_MONOTONIC, so comparable between
// processes.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class SystemClock {
 public:
  [[nodiscard]] TimePoint now() const { return std::chrono::steady_clock::now(); }  // any thread
};

}  // namespace regroup::base
