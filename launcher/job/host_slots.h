// Slots of the hosts of an elastic job.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/spec/hosts.h"

namespace regroup::job {

// Slots of a host that was given `given` slots (HostRequest::slots) and whose agent reports
// `reported`, its cores.
[[nodiscard]] constexpr std::uint32_t effective_slots(std::uint32_t given, std::uint32_t reported) {
  return given != 0 ? given : reported;
}

// What each host of a job offers its members. Pure.
class HostSlots {
 public:
  explicit HostSlots(const std::vector<spec::HostRequest>& hosts) {
    for (const spec::HostRequest& host : hosts) add(host.slots);
  }
  // `leased`: by a user, without a request of the job (NodeUp::leased).
  void add(std::uint32_t given, bool leased = false) { hosts_.push_back({given, leased}); }

  [[nodiscard]] std::uint32_t given(std::size_t host) const { return hosts_.at(host).given; }
  [[nodiscard]] bool leased(std::size_t host) const { return hosts_.at(host).leased; }
  [[nodiscard]] bool for_now(std::size_t host) const { return hosts_.at(host).for_now; }
  // `for_now`: the host may get back the slots that it has lost (NodeUp::for_now).
  void give(std::size_t host, std::uint32_t slots, bool for_now = false) {
    hosts_.at(host).given = slots;
    hosts_.at(host).for_now = for_now;
  }
  // The agent has resources for `count` members; 0: members get none. May be less than what is
  // given, as long as devices are missing.
  void set_resources(std::size_t host, std::uint32_t count) { hosts_.at(host).resources = count; }
  // Members that the host takes, if its agent reports `reported` slots.
  [[nodiscard]] std::uint32_t usable(std::size_t host, std::uint32_t reported) const {
    const auto& [given, leased, for_now, resources] = hosts_.at(host);
    if (resources == 0) return effective_slots(given, reported);
    return given != 0 ? std::min(given, resources) : resources;
  }

 private:
  struct Host {
    std::uint32_t given = 0;  // 0: all that it has
    bool leased = false;
    bool for_now = false;
    std::uint32_t resources = 0;
  };
  std::vector<Host> hosts_;
};

}  // namespace regroup::job
