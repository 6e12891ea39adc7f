// The monotonic clock. Code that depends on time takes it as an argument, so that tests control it;
// nothing depends on wall-clock time.
#pragma once

#include <chrono>

#include "regroup/types.h"

namespace regroup::base {

class SystemClock {
 public:
  [[nodiscard]] TimePoint now() const { return std::chrono::steady_clock::now(); }  // any thread
};

}  // namespace regroup::base
