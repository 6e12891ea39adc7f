// Notices of a failure that concerns all ranks of a communicator because they disagree. The rank
// that finds it sends the reason to the others, and publishes it with its address for ranks that
// arrive late. Stateless functions, for the thread that owns the mesh.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collective/ucx/active_message.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective::ucx {

// Sends `why` to the ranks `ranks` of the World except this one, and waits until they have acked
// it, at most 2 s. Also publishes `why`, unless all ranks have acked it or a lower rank has sent a
// notice of its own.
void send_failure(PeerMesh& mesh, const CommunicatorId& communicator, std::span<const int> ranks,
                  const std::string& why);
// Returns and acks the notice that another rank has sent, if any. Blocks for at most 2 s, until the
// ack has left.
[[nodiscard]] std::optional<std::string> receive_failure(PeerMesh& mesh,
                                                         const CommunicatorId& communicator);
// The reason that one of `ranks` has published after it closed its connections; "": none has.
[[nodiscard]] std::string published_failure(const PeerMesh& mesh, std::span<const int> ranks);

}  // namespace regroup::collective::ucx
