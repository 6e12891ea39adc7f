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
  ucp_ep_h endpoint = nullptr;
  std::uint64_t nonce = 0;  // of its letters' head; 0 as long as it is not known
  std::string lost;
  bool reported = false;
  bool asked = false;               // for its contacts
  std::vector<Contact> contacts{};  // not called yet
  std::vector<PeerCall> calls{};    // those of them that were; one that is answered becomes `endpoint`
  core::TimePoint next_call{};      // to the next contact, if nobody has answered by then
  core::TimePoint heard{};          // last letter
  std::uint64_t unthanked = 0;      // letters of ours
  std::uint64_t owed = 0;           // thanks for theirs
  enum : std::uint8_t { kHeard, kSilent, kCutOff } told = kHeard;  // to on_peer_silent
};

}  // namespace regroup::collective
