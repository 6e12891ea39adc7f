// Chooses hosts and slots that go back to their providers.
#include "launcher/job/idle_hosts.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace regroup::job {
namespace {

using State = HostUse::State;

bool is_idle(const HostUse& host) {
  return host.state == State::kUp && host.members == 0 && !host.reclaimed;
}

// The host, and all others of its client.
std::vector<HostUse> returned_together(const std::vector<HostUse>& hosts, const HostUse& host) {
  if (!host.client) return {host};
  std::vector<HostUse> together;
  std::ranges::copy_if(hosts, std::back_inserter(together),
                       [&](const HostUse& each) { return each.client == host.client; });
  return together;
}

}  // namespace

std::uint32_t slots_in(const std::vector<HostUse>& hosts) {
  std::uint32_t slots = 0;
  for (const HostUse& host : hosts) slots += host.slots;
  return slots;
}

std::uint32_t slots_up(const std::vector<HostUse>& hosts) {
  std::uint32_t slots = 0;
  for (const HostUse& host : hosts) slots += host.state == State::kUp ? host.slots : 0;
  return slots;
}

std::uint32_t slots_lacked(const std::vector<HostUse>& hosts, std::uint32_t size) {
  return size - std::min(size, slots_in(hosts));
}

IdleHosts find_idle(const std::vector<HostUse>& hosts, std::uint32_t wanted) {
  IdleHosts idle;
  std::uint32_t spare = slots_up(hosts) - std::min(slots_up(hosts), wanted);
  std::set<std::size_t> chosen;
  for (auto last = hosts.rbegin(); last != hosts.rend(); ++last) {
    if (chosen.contains(last->host) || !(last->client || last->returnable)) continue;
    const std::vector<HostUse> together = returned_together(hosts, *last);
    if (!std::ranges::all_of(together, is_idle) || slots_in(together) > spare) continue;
    spare -= slots_in(together);
    for (const HostUse& host : together) {
      chosen.insert(host.host);
      idle.whole.push_back(host.host);
    }
  }
  for (auto last = hosts.rbegin(); last != hosts.rend() && spare > 0; ++last) {
    if (chosen.contains(last->host) || last->client || !last->divisible) continue;
    if (last->state != State::kUp || last->reclaimed) continue;
    const auto kept = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(last->members));
    const std::uint32_t slots = std::min(spare, last->given - std::min(last->given, kept));
    if (slots == 0) continue;
    spare -= slots;
    idle.slots.push_back({last->host, slots});
  }
  return idle;
}

}  // namespace regroup::job
