// Data on its way, as the one who waits for it sees it.
#pragma once

#include <memory>

#include "collective/ucx/active_message.h"

namespace regroup::collective {

class PeerMesh;

// Data on its way from or into the caller's memory. Shared with UCX until it is done.
class Transfer {
 public:
  // What was sent: it may change; what was fetched: it is there. Never, of what is fetched from who is lost.
  [[nodiscard]] bool done() const {
    return state_ == nullptr || (state_->done && !(state_->fetches && state_->failed));
  }
  // Of what was sent: the other will not get it.
  [[nodiscard]] bool failed() const { return state_ != nullptr && state_->failed; }

 private:
  friend class PeerMesh;
  struct State {
    PeerMesh* mesh = nullptr;
    MessageHeader header;
    bool fetches = false;
    bool done = false;
    bool failed = false;
    std::shared_ptr<State> self;  // as long as UCX knows it
  };
  std::shared_ptr<State> state_;
};

}  // namespace regroup::collective
