// Serves docs/design/elastic_hosts.md, Peer addresses.
#include "membership/agent/host_peer_addresses.h"

#include <algorithm>

namespace regroup::membership {

void HostPeerAddresses::begin(const proto::World& world, proto::NodeId node) {
  expected_.clear();
  for (const proto::WorldMember& m : world.members) {
    if (m.slot_id.node == node) expected_.insert(m.id);
  }
  known_ = {world.generation, {}};
}

bool HostPeerAddresses::add(proto::MemberId member, const proto::PeerAddresses& own) {
  if (own.generation != known_.generation || own.members.size() != 1 || !expected_.contains(member))
    return false;
  const proto::MemberAddress entry{member, own.members[0].address};
  const auto known = std::ranges::find(known_.members, member, &proto::MemberAddress::member);
  if (known == known_.members.end()) {
    known_.members.push_back(entry);
  } else if (*known == entry) {
    return false;
  } else {
    *known = entry;
  }
  return known_.members.size() == expected_.size();
}

std::optional<proto::PeerAddresses> HostPeerAddresses::complete() const {
  if (expected_.empty() || known_.members.size() < expected_.size()) return std::nullopt;
  return known_;
}

}  // namespace regroup::membership
