// Choosing among nodes, and putting their contacts together.
#include "elastic/membership/node_table.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace regroup::membership {

NodeTable::Node* NodeTable::find(core::NodeId id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::uint32_t NodeTable::slots() const {
  return std::accumulate(nodes_.begin(), nodes_.end(), 0U,
                         [](std::uint32_t sum, const auto& node) { return sum + node.second.slots; });
}

core::NodeId NodeTable::next(const Load& load, bool by_node) const {
  const auto key = [&](const auto& entry) {
    const auto found = load.find(entry.first);
    const std::uint32_t used = found == load.end() ? 0 : found->second;
    const bool full = used >= entry.second.slots;
    return std::tuple(full, full || by_node ? used : 0, entry.first);
  };
  return std::min_element(nodes_.begin(), nodes_.end(),
                          [&](const auto& a, const auto& b) { return key(a) < key(b); })
      ->first;
}

std::optional<core::Contacts> NodeTable::gather(core::NodeId from, const core::Contacts& contacts,
                                                const core::World& world) {
  if (contacts.generation != world.generation) return std::nullopt;
  if (generation_ != world.generation) contacts_.clear();
  generation_ = world.generation;
  contacts_[from] = contacts.members;
  core::Contacts all{world.generation, {}};
  for (const core::NodeId node : nodes_of(world)) {
    const auto found = contacts_.find(node);
    if (found == contacts_.end()) return std::nullopt;
    all.members.insert(all.members.end(), found->second.begin(), found->second.end());
  }
  return all;
}

std::vector<core::NodeId> nodes_of(const core::World& world) {
  std::set<core::NodeId> nodes;
  for (const core::WorldMember& m : world.members) nodes.insert(m.seat.node);
  return {nodes.begin(), nodes.end()};
}

}  // namespace regroup::membership
