// Failure detector of one connection. It counts heartbeat intervals without a message instead of
// measuring time: when this process was stopped itself, the messages that arrived meanwhile are
// read before the next interval is counted, so the peer is not declared lost for our own pause.
#pragma once

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "launcher/agent/messages.h"

namespace regroup::agent {

// After this time without a message the peer is reported silent.
inline constexpr std::chrono::seconds kSuspicion{1};
// After this time without a message the peer is lost.
inline constexpr std::chrono::seconds kSilence{5};
// The longest announced pause (HostNotice) that is added to kSilence.
inline constexpr std::chrono::minutes kMostPause{2};

// One thread at a time.
class HeartbeatMonitor {
 public:
  enum class Change { kNone, kSilent, kLost };

  // A heartbeat interval has passed. kSilent is returned once for each silence, kLost from then on.
  [[nodiscard]] Change on_interval() {
    ++missed_;
    if (missed_ > (kSilence + pause_) / kHeartbeatInterval) return Change::kLost;
    if (missed_ < kSuspicion / kHeartbeatInterval || std::exchange(silent_, true))
      return Change::kNone;
    return Change::kSilent;
  }
  // Any message of the peer has arrived. True: the peer was reported silent until now.
  [[nodiscard]] bool on_message() {
    missed_ = 0;
    return std::exchange(silent_, false);
  }
  // The peer has announced that its host may pause for `pause`: it is lost that much later. Zero:
  // the pause is over.
  void extend(base::Duration pause) {
    pause_ = std::chrono::duration_cast<std::chrono::milliseconds>(pause);
  }
  // This process has not read for a while: silence until now says nothing about the peer.
  void reset() { missed_ = 0; }

 private:
  int missed_ = 0;  // intervals since the last message
  std::chrono::milliseconds pause_{};
  bool silent_ = false;
};

}  // namespace regroup::agent
