// What a wire knows of another member: its connection, and as long as there is none the calls that may become
// one.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collective/ucx/contact.h"
#include "core/clock.h"

namespace regroup::collective {

// To one address; not answered yet.
struct PeerCall {
  ucp_ep_h endpoint = nullptr;
  Contact contact{};
  core::TimePoint since{};
  bool failed = false;
};

struct WirePeer {
  ucp_ep_h endpoint = nullptr;  // of the connection that was taken
  std::uint64_t nonce = 0;      // of its letters' head; 0 as long as it is not known
  std::string lost;             // why that connection broke
  bool reported = false;
  bool used = false;                // something but a hello has gone or come by it
  bool asked = false;               // for its contacts
  std::vector<Contact> contacts{};  // in the order in which they are called, again and again ...
  std::size_t next = 0;             // ... this one next ...
  core::TimePoint next_call{};      // ... if nobody has answered by then
  std::vector<PeerCall> calls{};    // that were not answered; one that is becomes `endpoint`
  std::string refused;              // why the last one failed
  core::TimePoint heard{};          // last letter
  std::uint64_t unthanked = 0;      // letters of ours
  std::uint64_t owed = 0;           // thanks for theirs
  enum : std::uint8_t { kHeard, kSilent, kCutOff } told = kHeard;  // to on_peer_silent
};

}  // namespace regroup::collective
