// The agents' answers to Hello.
#include "membership/coordinator/recovery.h"

namespace regroup::membership {

void Recovery::add(const proto::HelloReply& reply, const proto::World& journaled) {
  highest_ = std::max({highest_, reply.world, reply.revoked_up_to});
  agreed_ =
      agreed_ && reply.world == journaled.generation && reply.revoked_up_to < journaled.generation;
}

std::vector<proto::MemberId> unreported_members(const MemberTable& members, proto::NodeId node,
                                                const std::vector<proto::SlotReport>& slots) {
  std::vector<proto::MemberId> out;
  for (const proto::MemberId id : members.on_node(node)) {
    const auto reported = [&](const proto::SlotReport& slot) { return slot.member == id; };
    if (members.find(id)->rank >= 0 && std::ranges::none_of(slots, reported)) out.push_back(id);
  }
  return out;
}

}  // namespace regroup::membership
