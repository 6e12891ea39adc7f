// How long a waiting member spins before it sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace regroup::collective {

// The limit counts from the last observed progress, not from the beginning of the wait: otherwise a
// rank in a long operation would exceed it and sleep at each chunk, which would give the core to a
// co-located process. With a longer limit, ranks of two jobs that share cores would block each
// other.
class SpinLimit {
 public:
  static constexpr std::chrono::microseconds kAfterProgress{50};

  // True if the member may go on spinning. `progress`: total number of steps that it has observed.
  [[nodiscard]] bool allows(std::uint64_t progress, base::TimePoint now) {
    if (std::exchange(seen_, progress) != progress) end_ = now + kAfterProgress;
    return now < end_;
  }

 private:
  std::uint64_t seen_ = ~std::uint64_t{0};  // a count that never occurs
  base::TimePoint end_{};
};

}  // namespace regroup::collective
