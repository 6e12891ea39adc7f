// The tree of agents: parents, children and routes. No I/O: the controller has the tree of the whole job, an
// agent its subtree, a simulation any.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/world.h"

namespace regroup::node {

inline constexpr core::NodeId kController = 0;  // the root of every job's tree
inline constexpr std::size_t kRadix = 64;       // default number of children per agent

// The parent of the agent at position `index` of a row in which each has at most `radix` children, as a
// position; nullopt: the root. Radix 0: all agents are children of the root.
[[nodiscard]] std::optional<std::size_t> parent_in_row(std::size_t index, std::size_t radix);

class Tree {
 public:
  explicit Tree(core::NodeId root) : root_(root) { entries_.try_emplace(root); }
  [[nodiscard]] core::NodeId root() const { return root_; }

  // False, without effect, if `node` exists or `parent` does not.
  bool add(core::NodeId node, core::NodeId parent);
  // Moves `node` with its subtree. False, without effect, also if `parent` is in that subtree.
  bool move(core::NodeId node, core::NodeId parent);
  // Separates `node` with its subtree, which has no parent until it is moved. Not the root.
  void detach(core::NodeId node);
  // Removes `node`. Its children keep their subtrees and have no parent until they are moved. Not the root.
  void remove(core::NodeId node);
  // Removes `node` with its subtree. Not the root.
  void prune(core::NodeId node);

  [[nodiscard]] bool has(core::NodeId node) const { return entries_.contains(node); }
  [[nodiscard]] std::optional<core::NodeId> parent(core::NodeId node) const;
  [[nodiscard]] std::vector<core::NodeId> children(core::NodeId node) const;
  // The subtree of `top`, each node before its children; empty if there is no such node.
  [[nodiscard]] std::vector<core::NodeId> below(core::NodeId top) const;
  // `node` is in the subtree of `top`.
  [[nodiscard]] bool within(core::NodeId node, core::NodeId top) const;
  // The child of `from` on the path to `node`; nullopt if `node` is not below `from`.
  [[nodiscard]] std::optional<core::NodeId> next_hop(core::NodeId from, core::NodeId node) const;
  // Distance from the root, which has 0; nullopt for a node that is not connected to it.
  [[nodiscard]] std::optional<std::size_t> depth(core::NodeId node) const;

 private:
  struct Entry {
    std::optional<core::NodeId> parent;
    std::set<core::NodeId> children;
  };
  void cut(core::NodeId node);

  core::NodeId root_;
  std::map<core::NodeId, Entry> entries_;
};

}  // namespace regroup::node
