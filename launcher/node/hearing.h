// Whether another is heard, counted in the beats that did not come, not in time: after a while in which we
// were stopped, what has come in the meantime is read first.
#pragma once

#include <chrono>
#include <utility>

#include "launcher/node/messages.h"

namespace regroup::node {

inline constexpr std::chrono::seconds kSuspicion{1};  // after which an agent is silent
inline constexpr std::chrono::seconds kSilence{5};    // after which it is taken for lost

class Hearing {
 public:
  enum class Change { kNone, kSilent, kLost };

  // The time of a beat has passed.
  [[nodiscard]] Change miss() {
    ++missed_;
    if (missed_ > kSilence / kBeat) return Change::kLost;
    if (missed_ < kSuspicion / kBeat || std::exchange(silent_, true)) return Change::kNone;
    return Change::kSilent;
  }
  // True: it was silent until now.
  [[nodiscard]] bool hear() {
    missed_ = 0;
    return std::exchange(silent_, false);
  }
  // It was we who did not listen.
  void forgive() { missed_ = 0; }

 private:
  int missed_ = 0;
  bool silent_ = false;
};

}  // namespace regroup::node
