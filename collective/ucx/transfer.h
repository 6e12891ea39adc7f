// The handle of an asynchronous send or fetch.
#pragma once

#include <memory>

#include "collective/ucx/active_message.h"

namespace regroup::collective::ucx {

class PeerMesh;

// Data that UCX is reading from or writing to the caller's memory. A copy may outlive the
// operation; a default-made one is done. Used by the thread of the mesh.
class Transfer {
 public:
  // A send: the caller may change the data. A fetch: the data has arrived; never true if the sender
  // was lost.
  [[nodiscard]] bool done() const {
    return state_ == nullptr || (state_->done && !(state_->fetches && state_->failed));
  }
  // A send: the peer will not receive it.
  [[nodiscard]] bool failed() const { return state_ != nullptr && state_->failed; }

 private:
  friend class PeerMesh;
  struct State {
    PeerMesh* mesh = nullptr;
    MessageHeader header;
    bool fetches = false;
    bool done = false;
    bool failed = false;
    std::shared_ptr<State> self;  // keeps the state alive until UCX has finished
  };
  std::shared_ptr<State> state_;
};

}  // namespace regroup::collective::ucx
