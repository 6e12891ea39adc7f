// How long a member that can have a core for itself looks for the others before it sleeps. One that lost its
// core to another process is back after a time slice; who sleeps meanwhile loses its own to that process too,
// and waits for it when it is rung. One that comes later computes, and so may something else on this core.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace regroup::collective {

// Owned and used by one thread.
class Patience {
 public:
  static constexpr core::Duration kMost = std::chrono::milliseconds(5);
  static constexpr core::Duration kLeast = std::chrono::microseconds(50);
  // With the time that this member takes to be back on its core.
  static constexpr core::Duration kLate = std::chrono::milliseconds(10);

  explicit Patience(core::Duration most) : most_(most) {}

  // How long nothing may move. In the midst of an operation the others have nothing else to do.
  [[nodiscard]] core::Duration now(bool in_midst) const {
    return in_midst || lasts_ ? most_ : std::min(most_, kLeast);
  }
  // The others came to an operation so long after this member. Those that are about as soon say nothing: of
  // several operations in a row they are late at the first only.
  void came_after(core::Duration late) {
    if (late > kLeast) lasts_ = late <= kLate;
  }

 private:
  core::Duration most_;
  bool lasts_ = true;
};

// What a member that waits knows of it.
struct Watch {
  bool for_message;           // rather than for an operation of all
  bool in_midst;              // of that operation, since the last move
  std::uint64_t moves;        // of all operations, or of all messages, so far
  core::TimePoint last_move;  // or when the wait began
  core::Duration nap;         // the next
};

}  // namespace regroup::collective
