// When two observations together are the loss of a host.
#include "membership/coordinator/host_suspicions.h"

namespace regroup::membership {

void HostSuspicions::set_silent(proto::NodeId node, bool silent) {
  if (silent)
    silent_.insert(node);
  else
    silent_.erase(node);
}

bool HostSuspicions::suspect(base::TimePoint now, proto::MemberId member) {
  const auto [known, first] = suspected_.try_emplace(member, now);
  const bool counted = !first && now - known->second <= kCounts;
  known->second = now;
  return !counted;
}

std::set<proto::NodeId> HostSuspicions::lost(base::TimePoint now,
                                             const MemberTable& members) const {
  std::set<proto::NodeId> out;
  if (silent_.empty()) return out;
  for (const auto& [id, at] : suspected_) {
    const MemberInfo* r = members.find(id);
    if (r == nullptr || !r->lives_in_world() || now - at > kCounts) continue;
    if (silent_.contains(r->slot_id.node)) out.insert(r->slot_id.node);
  }
  return out;
}

}  // namespace regroup::membership
