// Addresses of members, gathered by node and sent on in parts.
#include "membership/coordinator/contact_exchange.h"

namespace regroup::membership {

std::vector<proto::Contacts> ContactExchange::add(proto::NodeId from,
                                                  const proto::Contacts& contacts,
                                                  const proto::World& world) {
  if (contacts.generation != world.generation) return {};
  if (generation_ != world.generation) {
    generation_ = world.generation;
    contacts_.clear();
    awaited_ = nodes_of(world);
  }
  if (awaited_.erase(from) == 0 && !contacts_.contains(from)) return {};
  contacts_[from] = contacts.members;
  if (!awaited_.empty()) return {};
  std::vector<proto::Contacts> parts{{generation_, {}}};
  std::size_t bytes = 0;
  for (const auto& [node, members] : contacts_) {
    for (const proto::Contact& contact : members) {
      if (bytes > 0 && bytes + contact.address.size() > kPartBytes) {
        parts.push_back({generation_, {}});
        bytes = 0;
      }
      parts.back().members.push_back(contact);
      bytes += contact.address.size();
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
