// Keeps a crashing program from being restarted in a hot loop.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace regroup::membership {

// When the next replacement may start: 0.3 s after a failure, doubled up to 10 s while failures follow each
// other without progress.
class Backoff {
 public:
  void failed(core::TimePoint now) {
    const core::Duration delay = kFirst * (1 << std::min(failures_, 10U));
    not_before_ = now + std::min<core::Duration>(delay, std::chrono::seconds(10));
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
  // Survivors finish the open step first: a process that starts wants their cores.
  static constexpr std::chrono::milliseconds kFirst{300};

 private:
  std::uint32_t failures_ = 0;
  std::uint32_t failed_starts_ = 0;  // in a row, died before Ready
  core::TimePoint not_before_{};
};

}  // namespace regroup::membership
