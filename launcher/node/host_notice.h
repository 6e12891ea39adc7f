// A message of agents: launcher/node/messages.h.
#pragma once

#include <cstdint>
#include <string>

namespace regroup::node {

// Agent -> head. This host is wanted back, in so long: "SIGTERM" to its agent, or a notice that it heard.
struct HostNotice {
  static constexpr std::uint32_t kNotSaid = 0xffffffff;
  std::uint32_t within_ms = kNotSaid;
  std::string why;
};

}  // namespace regroup::node
