// Nodes store their parent and their children; every search goes up, so it takes as many steps as
// the tree is deep.
#include "launcher/agent/tree.h"

namespace regroup::agent {

std::optional<std::size_t> parent_in_row(std::size_t index, std::size_t radix) {
  if (radix == 0 || index < radix) return std::nullopt;
  return index / radix - 1;
}

bool Tree::add(proto::NodeId node, proto::NodeId parent) {
  const auto above = entries_.find(parent);
  if (above == entries_.end() || !entries_.try_emplace(node).second) return false;
  entries_[node].parent = parent;
  above->second.children.insert(node);
  return true;
}

bool Tree::move(proto::NodeId node, proto::NodeId parent) {
  if (!has(node) || !has(parent) || within(parent, node)) return false;
  cut(node);
  entries_[node].parent = parent;
  entries_[parent].children.insert(node);
  return true;
}

void Tree::cut(proto::NodeId node) {
  Entry& entry = entries_[node];
  if (entry.parent) entries_[*entry.parent].children.erase(node);
  entry.parent.reset();
}

void Tree::detach(proto::NodeId node) {
  if (has(node)) cut(node);
}

void Tree::remove(proto::NodeId node) {
  if (!has(node)) return;
  cut(node);
  for (const proto::NodeId child : entries_[node].children) entries_[child].parent.reset();
  entries_.erase(node);
}

void Tree::prune(proto::NodeId node) {
  for (const proto::NodeId each : below(node)) remove(each);
}

std::optional<proto::NodeId> Tree::parent(proto::NodeId node) const {
  const auto found = entries_.find(node);
  return found == entries_.end() ? std::nullopt : found->second.parent;
}

std::vector<proto::NodeId> Tree::children(proto::NodeId node) const {
  const auto found = entries_.find(node);
  if (found == entries_.end()) return {};
  return {found->second.children.begin(), found->second.children.end()};
}

std::vector<proto::NodeId> Tree::below(proto::NodeId top) const {
  if (!has(top)) return {};
  std::vector<proto::NodeId> out{top};
  for (std::size_t at = 0; at < out.size(); ++at) {
    for (const proto::NodeId child : entries_.at(out[at]).children) out.push_back(child);
  }
  return out;
}

bool Tree::within(proto::NodeId node, proto::NodeId top) const {
  return has(node) && has(top) && (node == top || next_hop(top, node));
}

std::optional<proto::NodeId> Tree::next_hop(proto::NodeId from, proto::NodeId node) const {
  for (std::optional<proto::NodeId> up = parent(node); up; up = parent(node)) {
    if (*up == from) return node;
    node = *up;
  }
  return std::nullopt;
}

std::optional<std::size_t> Tree::depth(proto::NodeId node) const {
  if (!has(node)) return std::nullopt;
  std::size_t steps = 0;
  for (std::optional<proto::NodeId> up = parent(node); up; up = parent(*up)) {
    node = *up;
    ++steps;
  }
  return node == root_ ? std::optional(steps) : std::nullopt;
}

}  // namespace regroup::agent
