// Which hosts and slots an elastic job does not need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/lease/lease_server.h"

namespace regroup::job {

// A host that has not left the job.
struct HostUse {
  enum class State : std::uint8_t { kUp, kLost, kDrains };  // a lost one may come back
  std::size_t host = 0;                                     // its index
  State state = State::kUp;
  std::uint32_t slots = 0;  // that its members may use; 0 if it drains
  std::uint32_t given = 0;  // that its provider gave; 0: all that it has
  std::size_t members = 0;
  bool reclaimed = false;                     // some of its slots are on their way to the allocator
  std::optional<lease::GrantId> client = {};  // that offered the host
  bool returnable = false;                    // the allocator takes the whole host
  bool divisible = false;                     // the allocator takes some of its slots
};

// Slots of all hosts, and of those that are up.
[[nodiscard]] std::uint32_t slots_in(const std::vector<HostUse>& hosts);
[[nodiscard]] std::uint32_t slots_up(const std::vector<HostUse>& hosts);
// Slots that a job of `size` members lacks, lost hosts included.
[[nodiscard]] std::uint32_t slots_lacked(const std::vector<HostUse>& hosts, std::uint32_t size);

// Some slots of a host.
struct IdleSlots {
  std::size_t host = 0;
  std::uint32_t slots = 0;
  bool operator==(const IdleSlots&) const = default;
};
struct IdleHosts {
  std::vector<std::size_t> whole;  // in the order in which they are to be returned
  std::vector<IdleSlots> slots;    // of hosts that stay
};
// What to return so that at least `wanted` slots stay: hosts without members, from the last one on
// and all hosts of a client together; then slots without members of hosts that stay, from the last
// one on, where a host keeps one slot at least. Pure.
[[nodiscard]] IdleHosts find_idle(const std::vector<HostUse>& hosts, std::uint32_t wanted);

}  // namespace regroup::job
