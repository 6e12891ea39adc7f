// What a PeerMesh knows of one other member: its endpoint, or the attempts to connect to it.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/ucx/peer_address.h"

namespace regroup::collective::ucx {

// An attempt to connect to one address, which the peer has not answered yet.
struct ConnectionAttempt {
  ucp_ep_h endpoint = nullptr;
  PeerAddress address{};
  base::TimePoint since{};
  bool failed = false;
};

// Plain data of the PeerMesh, which closes the endpoints. Also describes a pending peer: a process
// that has connected, but has not proved by a handshake with our nonce that it is a member.
struct MeshPeer {
  ucp_ep_h endpoint = nullptr;  // of the established connection
  // The peer's, for the headers of messages to it; 0 as long as it is unknown.
  std::uint64_t nonce = 0;
  std::string lost;       // why the connection broke; empty while it has not
  bool reported = false;  // `lost` was passed to on_peer_lost
  bool used = false;      // a message other than a handshake was sent or received on the connection
  bool resolved = false;  // `addresses` was looked up
  std::vector<PeerAddress> addresses{};  // tried in this order, round after round ...
  std::size_t next_address = 0;          // ... this one next ...
  base::TimePoint next_attempt{};        // ... at this time, unless an attempt succeeds before
  std::vector<ConnectionAttempt> attempts{};
  std::string connect_error;        // why the last failed attempt failed
  base::TimePoint last_received{};  // when the last message came; zero: none has come
  std::uint64_t unacked = 0;  // messages to the peer that need an ack in a header and have none
  // Acks for the peer's messages, which the next header to it carries.
  std::uint64_t pending_acks = 0;
  enum : std::uint8_t {
    kNone,
    kSilent,
    kUnreachable
  } silence = kNone;  // last report to on_peer_silent
};

}  // namespace regroup::collective::ucx
