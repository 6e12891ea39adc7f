// What a mesh knows of another member: its connection, and as long as there is none the calls that may become
// one.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collective/ucx/peer_address.h"
#include "core/clock.h"

namespace regroup::collective {

// To one address; not answered yet.
struct ConnectionAttempt {
  ucp_ep_h endpoint = nullptr;
  PeerAddress address{};
  core::TimePoint since{};
  bool failed = false;
};

struct MeshPeer {
  ucp_ep_h endpoint = nullptr;  // of the connection that was taken
  std::uint64_t nonce = 0;      // of its messages' header; 0 as long as it is not known
  std::string lost;             // why that connection broke
  bool reported = false;
  bool used = false;                          // something but a hello has gone or come by it
  bool resolved = false;                      // for its contacts
  std::vector<PeerAddress> addresses{};       // in the order in which they are called, again and again ...
  std::size_t next_address = 0;               // ... this one next ...
  core::TimePoint next_attempt{};             // ... if nobody has answered by then
  std::vector<ConnectionAttempt> attempts{};  // that were not answered; one that is becomes `endpoint`
  std::string connect_error;                  // why the last one failed
  core::TimePoint last_received{};            // last message
  std::uint64_t unacked = 0;                  // messages of ours
  std::uint64_t pending_acks = 0;             // thanks for theirs
  enum : std::uint8_t { kNone, kSilent, kUnreachable } silence = kNone;  // to on_peer_silent
};

}  // namespace regroup::collective
