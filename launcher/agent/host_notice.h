// A message of agents: launcher/agent/messages.h.
#pragma once

#include <cstdint>
#include <string>

namespace regroup::agent {

// Agent -> controller: an allocator will take this host away in `within_ms`. `why` names the
// notice, or "SIGTERM" to the agent. Another notice may follow and leave less time. kSuspended: the
// host will be suspended, `why` names the source; kOver: that suspension has ended and the host may
// be used again. kPauses, to the parent only: this host pauses for `within_ms` at most (a virtual
// machine that is frozen, for example), so its silence means nothing until it sends kMoves.
struct HostNotice {
  static constexpr std::uint32_t kNotSaid = 0xffffffff;
  enum class Kind : std::uint8_t { kGoes, kSuspended, kOver, kPauses, kMoves };
  std::uint32_t within_ms = kNotSaid;
  std::string why;
  Kind kind = Kind::kGoes;
};

}  // namespace regroup::agent
