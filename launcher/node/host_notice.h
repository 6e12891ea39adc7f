// A message of agents: launcher/node/messages.h.
#pragma once

#include <cstdint>
#include <string>

namespace regroup::node {

// Agent -> head. This host is wanted back, in so long: "SIGTERM" to its agent, or a notice that it heard.
// Another may follow, which may leave less time. Of a suspension, and of its end, `why` is the source.
// kPauses, to the agent or head above alone: this host stands still for `within_ms` at most, or is about to,
// and its silence means nothing until it says kMoves.
struct HostNotice {
  static constexpr std::uint32_t kNotSaid = 0xffffffff;
  enum class Kind : std::uint8_t { kGoes, kSuspended, kOver, kPauses, kMoves };
  // kOver: of the suspension; it may be used
  std::uint32_t within_ms = kNotSaid;
  std::string why;
  Kind kind = Kind::kGoes;
};

}  // namespace regroup::node
