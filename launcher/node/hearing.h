// Whether another is heard, counted in the beats that did not come, not in time: after a while in which we
// were stopped, what has come in the meantime is read first.
#pragma once

#include <chrono>
#include <utility>

#include "core/clock.h"
#include "launcher/node/messages.h"

namespace regroup::node {

inline constexpr std::chrono::seconds kSuspicion{1};  // after which an agent is silent
inline constexpr std::chrono::seconds kSilence{5};    // after which it is taken for lost
inline constexpr std::chrono::minutes kMostPause{2};  // so much later at most, while its host stands still

class Hearing {
 public:
  enum class Change { kNone, kSilent, kLost };

  // The time of a beat has passed.
  [[nodiscard]] Change miss() {
    ++missed_;
    if (missed_ > (kSilence + pause_) / kBeat) return Change::kLost;
    if (missed_ < kSuspicion / kBeat || std::exchange(silent_, true)) return Change::kNone;
    return Change::kSilent;
  }
  // True: it was silent until now.
  [[nodiscard]] bool hear() {
    missed_ = 0;
    return std::exchange(silent_, false);
  }
  // It may be silent for so much longer, for its host stands still; zero: no more.
  void allow(core::Duration pause) { pause_ = std::chrono::duration_cast<std::chrono::milliseconds>(pause); }
  // It was we who did not listen.
  void forgive() { missed_ = 0; }

 private:
  int missed_ = 0;
  std::chrono::milliseconds pause_{};
  bool silent_ = false;
};

}  // namespace regroup::node
