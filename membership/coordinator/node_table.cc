// The choice of a node for the next process, and the collection of addresses.
#include "membership/coordinator/node_table.h"

#include <algorithm>
#include <utility>

namespace regroup::membership {

NodeTable::Node* NodeTable::find(proto::NodeId id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

const NodeTable::Node* NodeTable::find(proto::NodeId id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

void NodeTable::add(proto::NodeId id, const Node& node) {
  if (!nodes_.try_emplace(id, node).second) return;
  slots_ += node.slots;
  by_load_.insert(load_key(id));
}

void NodeTable::erase(proto::NodeId id) {
  if (!contains(id)) return;
  by_load_.erase(load_key(id));
  slots_ -= nodes_.at(id).slots;
  nodes_.erase(id);
}

void NodeTable::resize(proto::NodeId id, std::uint32_t slots) {
  Node& node = nodes_.at(id);
  by_load_.erase(load_key(id));
  slots_ += slots - node.slots;
  node.slots = slots;
  by_load_.insert(load_key(id));
}

void NodeTable::set_load(proto::NodeId id, std::uint32_t processes) {
  const bool here = contains(id);  // its members may be known before the node is
  if (here) by_load_.erase(load_key(id));
  load_[id] = processes;
  if (here) by_load_.insert(load_key(id));
}

NodeTable::LoadKey NodeTable::load_key(proto::NodeId id) const {
  const auto found = load_.find(id);
  const std::uint32_t used = found == load_.end() ? 0 : found->second;
  const std::uint32_t slots = nodes_.at(id).slots;
  const Room room = slots == 0 ? Room::kNone : used >= slots ? Room::kFull : Room::kFree;
  return {room, room != Room::kFree || by_node_ ? used : 0, id};
}

std::optional<proto::Contacts> NodeTable::gather(proto::NodeId from,
                                                 const proto::Contacts& contacts,
                                                 const proto::World& world) {
  if (contacts.generation != world.generation) return std::nullopt;
  if (generation_ != world.generation) {
    generation_ = world.generation;
    contacts_.clear();
    const auto nodes = nodes_of(world);
    awaited_ = {nodes.begin(), nodes.end()};
  }
  if (awaited_.erase(from) == 0 && !contacts_.contains(from)) return std::nullopt;
  contacts_[from] = contacts.members;
  if (!awaited_.empty()) return std::nullopt;
  proto::Contacts all{world.generation, {}};
  for (const auto& [node, members] : contacts_)
    all.members.insert(all.members.end(), members.begin(), members.end());
  return all;
}

std::vector<proto::NodeId> nodes_of(const proto::World& world) {
  std::set<proto::NodeId> nodes;
  for (const proto::WorldMember& m : world.members) nodes.insert(m.slot_id.node);
  return {nodes.begin(), nodes.end()};
}

}  // namespace regroup::membership
