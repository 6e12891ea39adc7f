// Which slots of which host are to become free, and for whom.
#include "launcher/job/slot_reclaims.h"

namespace regroup::job {

SlotReclaims::Step SlotReclaims::step(std::size_t host, std::size_t members, std::uint32_t slots,
                                      base::TimePoint now) const {
  const SlotReclaim& reclaim = by_host_.at(host);
  if (members <= slots) return reclaim.client ? Step::kReport : Step::kReturn;
  return now < reclaim.deadline ? Step::kWait : Step::kKeep;
}

SlotReclaim SlotReclaims::end(std::size_t host) { return by_host_.extract(host).mapped(); }

std::set<lease::GrantId> SlotReclaims::clients() const {
  std::set<lease::GrantId> clients;
  for (const auto& [host, reclaim] : by_host_) {
    if (reclaim.client) clients.insert(*reclaim.client);
  }
  return clients;
}

}  // namespace regroup::job
