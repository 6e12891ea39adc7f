// Addresses of members, gathered by node and sent on in parts.
#include "membership/coordinator/peer_address_exchange.h"

namespace regroup::membership {

std::vector<proto::PeerAddresses> PeerAddressExchange::add(proto::NodeId from,
                                                           const proto::PeerAddresses& addresses,
                                                           const proto::World& world) {
  if (addresses.generation != world.generation) return {};
  if (generation_ != world.generation) {
    generation_ = world.generation;
    peer_addresses_.clear();
    awaited_ = nodes_of(world);
  }
  if (awaited_.erase(from) == 0 && !peer_addresses_.contains(from)) return {};
  peer_addresses_[from] = addresses.members;
  if (!awaited_.empty()) return {};
  std::vector<proto::PeerAddresses> parts{{generation_, {}}};
  std::size_t bytes = 0;
  for (const auto& [node, members] : peer_addresses_) {
    for (const proto::MemberAddress& entry : members) {
      if (bytes > 0 && bytes + entry.address.size() > kPartBytes) {
        parts.push_back({generation_, {}});
        bytes = 0;
      }
      parts.back().members.push_back(entry);
      bytes += entry.address.size();
    }
  }
  return parts;
}

std::set<proto::NodeId> nodes_of(const proto::World& world) {
  std::set<proto::NodeId> nodes;
  for (const proto::WorldMember& m : world.members) nodes.insert(m.slot_id.node);
  return nodes;
}

}  // namespace regroup::membership
