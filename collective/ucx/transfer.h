// The handle of an asynchronous send or fetch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collective/ucx/active_message.h"

namespace regroup::collective::ucx {

class PeerMesh;

// A send that reads, or a fetch that writes, the caller's memory. Copies share the state and may
// outlive the operation. A default-constructed one is done. Used by the thread of the mesh.
class Transfer {
 public:
  // For a send: true once the caller may change the data. For a fetch: true once the data has
  // arrived; never if the sender was lost.
  [[nodiscard]] bool done() const {
    return state_ == nullptr || (state_->done && !(state_->fetches && state_->failed));
  }
  // For a send: true if the peer will not receive the data.
  [[nodiscard]] bool failed() const { return state_ != nullptr && state_->failed; }

 private:
  friend class PeerMesh;
  struct State {
    PeerMesh* mesh = nullptr;
    MessageHeader header;
    std::shared_ptr<const std::vector<std::byte>> owned;  // the data, if it is not the caller's
    bool fetches = false;
    bool done = false;
    bool failed = false;
    std::shared_ptr<State> self;  // keeps the state alive until UCX has finished
  };
  std::shared_ptr<State> state_;
};

}  // namespace regroup::collective::ucx
