// Notices of a failure that all ranks of a communicator share because they disagree: one rank tells
// the others, by messages, and by the address that it publishes to those that arrive late. Without
// state of its own; used by the thread that owns the mesh.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collective/ucx/active_message.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective::ucx {

// Sends `why` to `ranks` of the World, without the own one, and waits until they have acked it, at
// most 2 s. Publishes it, too, unless all ranks have acked, or a lower rank has sent a notice of
// its own.
void send_failure(PeerMesh& mesh, const CommunicatorId& communicator, std::span<const int> ranks,
                  const std::string& why);
// What another rank has sent, acked; blocks for at most 2 s for the ack to leave.
[[nodiscard]] std::optional<std::string> receive_failure(PeerMesh& mesh,
                                                         const CommunicatorId& communicator);
// What one of `ranks` has published, if it has left and sends no messages; empty: none has.
[[nodiscard]] std::string published_failure(const PeerMesh& mesh, std::span<const int> ranks);

}  // namespace regroup::collective::ucx
