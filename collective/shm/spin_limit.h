// How long a member that waits spins before it sleeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "core/clock.h"

namespace regroup::collective {

// The limit counts from the last move that was seen, not from the beginning of the wait: in a long operation
// it would soon be over, and each chunk would mean a sleep, by which a process beside this one gets the core.
// Were it longer, the ranks of two jobs that share cores would keep each other from them.
class SpinLimit {
 public:
  static constexpr std::chrono::microseconds kAfterProgress{50};

  // `moves`: how many the waiting member has seen in all.
  [[nodiscard]] bool allows(std::uint64_t progress, core::TimePoint now) {
    if (std::exchange(seen_, progress) != progress) end_ = now + kAfterProgress;
    return now < end_;
  }

 private:
  std::uint64_t seen_ = ~std::uint64_t{0};  // no number of moves
  core::TimePoint end_{};
};

}  // namespace regroup::collective
