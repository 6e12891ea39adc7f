// The exchange of the addresses by which the members of a World connect.
// docs/design/elastic_hosts.md, Peer addresses.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// Collects the addresses of a World node by node. Pure.
class PeerAddressExchange {
 public:
  // `from` sends the addresses of its members in `world`; those of other generations are ignored.
  // Once every node of the World has sent its own, and for each that sends again afterwards,
  // returns the messages for all nodes: addresses of all members, in parts of about kPartBytes.
  [[nodiscard]] std::vector<proto::PeerAddresses> add(proto::NodeId from,
                                                      const proto::PeerAddresses& addresses,
                                                      const proto::World& world);

  static constexpr std::size_t kPartBytes = 256 << 10;

 private:
  proto::Generation generation_ = 0;  // of the next two
  std::set<proto::NodeId> awaited_;   // nodes whose addresses are missing
  std::map<proto::NodeId, std::vector<proto::MemberAddress>> peer_addresses_;
};

// The nodes of the members of `world`.
[[nodiscard]] std::set<proto::NodeId> nodes_of(const proto::World& world);

}  // namespace regroup::membership
