// When two observations together are the loss of a host.
#include "membership/coordinator/host_suspicions.h"

#include <algorithm>

namespace regroup::membership {

void HostSuspicions::set_silent(proto::NodeId node, bool silent) {
  if (silent)
    silent_.insert(node);
  else
    silent_.erase(node);
}

bool HostSuspicions::suspect(base::TimePoint now, proto::MemberId member, proto::NodeId by) {
  auto& reported = suspected_[member];
  const bool counted =
      std::ranges::any_of(reported, [&](const auto& r) { return now - r.second <= kCounts; });
  reported[by] = now;
  return !counted;
}

void HostSuspicions::forget(proto::NodeId node) {
  silent_.erase(node);
  for (auto& [member, reported] : suspected_) reported.erase(node);
}

std::map<proto::NodeId, std::set<proto::NodeId>> HostSuspicions::reports(
    base::TimePoint now, const MemberTable& members) const {
  std::map<proto::NodeId, std::set<proto::NodeId>> out;
  for (const auto& [id, reported] : suspected_) {
    const MemberInfo* r = members.find(id);
    if (r == nullptr || !r->lives_in_world()) continue;
    for (const auto& [by, at] : reported) {
      if (now - at <= kCounts && !silent_.contains(by)) out[r->slot_id.node].insert(by);
    }
  }
  return out;
}

std::set<proto::NodeId> HostSuspicions::lost(base::TimePoint now,
                                             const MemberTable& members) const {
  std::set<proto::NodeId> out;
  if (silent_.empty()) return out;
  const auto reported = reports(now, members);
  const auto hosts_against = [&](proto::NodeId node) {
    const auto found = reported.find(node);
    return found == reported.end() ? 0 : found->second.size();
  };
  for (const auto& [node, by] : reported) {
    if (silent_.contains(node) && std::ranges::any_of(by, [&](proto::NodeId observer) {
          return hosts_against(observer) < by.size();
        }))
      out.insert(node);
  }
  return out;
}

}  // namespace regroup::membership
