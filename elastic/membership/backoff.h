// Keeps a crashing program from being restarted in a hot loop.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace regroup::membership {

// When the next replacement may start: 0.1 s after a failure, doubled up to 10 s while failures follow each
// other without progress; not before 0.3 s where survivors go on.
class Backoff {
 public:
  void failed(core::TimePoint now, bool survivors_go_on = false) {
    const core::Duration delay = std::chrono::milliseconds(100) * (1 << std::min(failures_, 10U));
    const core::Duration least = survivors_go_on ? kSurvivorsFirst : core::Duration::zero();
    not_before_ = now + std::clamp<core::Duration>(delay, least, std::chrono::seconds(10));
    ++failures_;
  }
  void start_failed(core::TimePoint now) {
    ++failed_starts_;
    failed(now);
  }
  void became_ready() { failed_starts_ = 0; }
  void progressed() { failures_ = 0; }
  void reset() { *this = Backoff(); }
  [[nodiscard]] core::TimePoint not_before() const { return not_before_; }
  [[nodiscard]] bool given_up() const { return failed_starts_ >= kMostFailedStarts; }

  static constexpr std::uint32_t kMostFailedStarts = 3;
  // They finish the open step: a process that starts wants their cores.
  static constexpr core::Duration kSurvivorsFirst = std::chrono::milliseconds(300);

 private:
  std::uint32_t failures_ = 0;
  std::uint32_t failed_starts_ = 0;  // in a row, died before Ready
  core::TimePoint not_before_{};
};

}  // namespace regroup::membership
