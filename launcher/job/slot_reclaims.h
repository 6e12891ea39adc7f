// Slots of hosts that stay in an elastic job, which go back to the allocator once they are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "launcher/lease/lease_server.h"

namespace regroup::job {

struct SlotReclaim {
  // The client that demanded the slots for the allocator; none: the job returns them by itself.
  std::optional<lease::GrantId> client = {};
  std::uint32_t slots = 0;
  base::TimePoint deadline{};  // afterwards the job keeps the slots
};

// One reclaim at most for each host. Until it ends, the missing slots count as "for now"
// (NodeUp::for_now), because the job keeps them if the members do not leave in time. Pure.
class SlotReclaims {
 public:
  // What to do about the slots of a host.
  enum class Step : std::uint8_t {
    kWait,    // for members
    kReport,  // they are free: the client waits for that
    kReturn,  // they are free: the allocator may take them
    kKeep,    // the time is over
  };

  void begin(std::size_t host, const SlotReclaim& reclaim) { by_host_[host] = reclaim; }
  [[nodiscard]] bool has(std::size_t host) const { return by_host_.contains(host); }
  // `members` run on the host, which keeps `slots` slots. For a host with a reclaim.
  [[nodiscard]] Step step(std::size_t host, std::size_t members, std::uint32_t slots,
                          base::TimePoint now) const;
  [[nodiscard]] const SlotReclaim& at(std::size_t host) const { return by_host_.at(host); }
  // For a host with a reclaim, which is returned.
  SlotReclaim end(std::size_t host);
  // The clients that wait for slots.
  [[nodiscard]] std::set<lease::GrantId> clients() const;

 private:
  std::map<std::size_t, SlotReclaim> by_host_;
};

}  // namespace regroup::job
