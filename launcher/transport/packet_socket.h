// Control messages between an agent and a helper program: one in each packet of a SOCK_SEQPACKET
// pair, with at most one descriptor beside it.
#pragma once

#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/status.h"
#include "proto/message.h"

namespace regroup::transport {

// The first is the agent's. `peer` names the helper in messages.
[[nodiscard]] base::Result<std::pair<base::Fd, base::Fd>> packet_sockets(const char* peer);

// Sends `body`, with a duplicate of `descriptor` unless it is -1. Does not block if `wait` is
// false. kPeerLost: the peer has closed its socket. kResourceExhausted: the socket is full.
[[nodiscard]] base::Status send_packet(int socket, const proto::Body& body, int descriptor,
                                       bool wait);

struct Packet {
  proto::Message message;
  base::Fd descriptor;  // -1: none came
};
// The next packet; empty if `wait` is false and there is none now. kPeerLost: the peer has closed
// its socket. kDataLoss, kInvalidArgument: the packet is no message.
[[nodiscard]] base::Result<std::optional<Packet>> receive_packet(int socket, bool wait);

}  // namespace regroup::transport
