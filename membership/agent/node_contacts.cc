// Serves docs/design/elastic_hosts.md, Contacts.
#include "membership/agent/node_contacts.h"

#include <algorithm>

namespace regroup::membership {

void NodeContacts::begin(const proto::World& world, proto::NodeId node) {
  expected_.clear();
  for (const proto::WorldMember& m : world.members) {
    if (m.slot_id.node == node) expected_.insert(m.id);
  }
  known_ = {world.generation, {}};
}

bool NodeContacts::add(proto::MemberId member, const proto::Contacts& own) {
  if (own.generation != known_.generation || own.members.size() != 1 || !expected_.contains(member))
    return false;
  const proto::Contact contact{member, own.members[0].address};
  const auto known = std::ranges::find(known_.members, member, &proto::Contact::member);
  if (known == known_.members.end()) {
    known_.members.push_back(contact);
  } else if (*known == contact) {
    return false;
  } else {
    *known = contact;
  }
  return known_.members.size() == expected_.size();
}

std::optional<proto::Contacts> NodeContacts::complete() const {
  if (expected_.empty() || known_.members.size() < expected_.size()) return std::nullopt;
  return known_;
}

}  // namespace regroup::membership
