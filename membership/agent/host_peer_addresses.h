// The addresses by which the members of a World on one node are reached from other nodes.
#pragma once

#include <optional>
#include <set>

#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

// The coordinator needs those of all members, since a member connects to every other one. So a node
// sends its part once it is complete, and again when a member publishes another address, as it does
// after it has lost a connection. Plain data, no thread.
class HostPeerAddresses {
 public:
  // `world` is the newest one: addresses of earlier generations mean nothing in it.
  void begin(const proto::World& world, proto::NodeId node);
  // `member` has published `own`. Ignored: another generation, not one address, or a member that is
  // not in the World on this node. True: complete() has changed.
  [[nodiscard]] bool add(proto::MemberId member, const proto::PeerAddresses& own);
  // Of all members of the World on this node, in the order of their first publication; nothing
  // while one is missing, or if there is none.
  [[nodiscard]] std::optional<proto::PeerAddresses> complete() const;

 private:
  std::set<proto::MemberId> expected_;
  proto::PeerAddresses known_;
};

}  // namespace regroup::membership
