// The state that a PeerMesh has for one other member: its endpoint, or the attempts to connect.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collective/ucx/peer_address.h"

namespace regroup::collective::ucx {

// An attempt to connect to one address of a peer that has not replied yet.
struct ConnectionAttempt {
  ucp_ep_h endpoint = nullptr;
  PeerAddress address{};
  base::TimePoint since{};
  bool failed = false;
};

// Plain data; the PeerMesh closes the endpoints. Also describes a pending peer: a process that has
// connected, but has not yet proved by a handshake with our nonce that it is a member.
struct MeshPeer {
  ucp_ep_h endpoint = nullptr;  // of the established connection
  // The peer's nonce, for the headers of messages to it; 0 while unknown.
  std::uint64_t nonce = 0;
  std::string lost;       // why the connection broke; "" while it has not
  bool reported = false;  // `lost` was passed to on_peer_lost
  bool used = false;      // the connection has carried a message other than a handshake
  bool resolved = false;  // `addresses` was looked up
  std::vector<PeerAddress> addresses{};  // tried in this order, round after round
  std::size_t next_address = 0;          // index of the address to try next
  base::TimePoint next_attempt{};        // when to try it, unless an attempt succeeds before
  std::vector<ConnectionAttempt> attempts{};
  std::string connect_error;        // error of the last failed attempt
  base::TimePoint last_received{};  // when the last message arrived; zero: none has
  std::uint64_t unacked = 0;  // number of messages to the peer that still need an ack in a header
  // Number of acks for the peer's messages; the next header to it will carry them.
  std::uint64_t pending_acks = 0;
  enum : std::uint8_t {
    kNone,
    kSilent,
    kUnreachable
  } silence = kNone;  // last report to on_peer_silent
};

}  // namespace regroup::collective::ucx
