// The tree of agents: parents, children and routes. No I/O: the controller has the tree of the
// whole job, an agent its subtree, a simulation any.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "proto/world.h"

namespace regroup::agent {

inline constexpr proto::NodeId kController = 0;  // the root of every job's tree
inline constexpr std::size_t kRadix = 64;        // default number of children per agent

// The parent of the agent at position `index` of a row in which each has at most `radix` children,
// as a position; nullopt: the root. Radix 0: all agents are children of the root.
[[nodiscard]] std::optional<std::size_t> parent_in_row(std::size_t index, std::size_t radix);

class Tree {
 public:
  explicit Tree(proto::NodeId root) : root_(root) { entries_.try_emplace(root); }
  [[nodiscard]] proto::NodeId root() const { return root_; }

  // False, without effect, if `node` exists or `parent` does not.
  bool add(proto::NodeId node, proto::NodeId parent);
  // Moves `node` with its subtree. False, without effect, also if `parent` is in that subtree.
  bool move(proto::NodeId node, proto::NodeId parent);
  // Separates `node` with its subtree, which has no parent until it is moved. Not the root.
  void detach(proto::NodeId node);
  // Removes `node`. Its children keep their subtrees and have no parent until they are moved. Not
  // the root.
  void remove(proto::NodeId node);
  // Removes `node` with its subtree. Not the root.
  void prune(proto::NodeId node);

  [[nodiscard]] bool has(proto::NodeId node) const { return entries_.contains(node); }
  [[nodiscard]] std::optional<proto::NodeId> parent(proto::NodeId node) const;
  [[nodiscard]] std::vector<proto::NodeId> children(proto::NodeId node) const;
  // The subtree of `top`, each node before its children; empty if there is no such node.
  [[nodiscard]] std::vector<proto::NodeId> below(proto::NodeId top) const;
  // `node` is in the subtree of `top`.
  [[nodiscard]] bool within(proto::NodeId node, proto::NodeId top) const;
  // The child of `from` on the path to `node`; nullopt if `node` is not below `from`.
  [[nodiscard]] std::optional<proto::NodeId> next_hop(proto::NodeId from, proto::NodeId node) const;
  // Distance from the root, which has 0; nullopt for a node that is not connected to it.
  [[nodiscard]] std::optional<std::size_t> depth(proto::NodeId node) const;

 private:
  struct Entry {
    std::optional<proto::NodeId> parent;
    std::set<proto::NodeId> children;
  };
  void cut(proto::NodeId node);

  proto::NodeId root_;
  std::map<proto::NodeId, Entry> entries_;
};

}  // namespace regroup::agent
