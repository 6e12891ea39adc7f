// The choice of a node for the next process.
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

void NodeTable::hold(const std::set<proto::NodeId>& nodes) {
  if (nodes == held_) return;
  by_load_.clear();
  held_ = nodes;
  for (const auto& [id, node] : nodes_) by_load_.insert(load_key(id));
}

NodeTable::LoadKey NodeTable::load_key(proto::NodeId id) const {
  const auto found = load_.find(id);
  const std::uint32_t used = found == load_.end() ? 0 : found->second;
  const std::uint32_t slots = nodes_.at(id).slots;
  const Room room = slots == 0      ? Room::kNone
                    : used >= slots ? Room::kFull
                    : is_held(id)   ? Room::kHeld
                                    : Room::kFree;
  return {room, room != Room::kFree || by_node_ ? used : 0, id};
}

}  // namespace regroup::membership
