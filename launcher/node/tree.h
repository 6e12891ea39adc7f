// Who is whose parent in the tree of agents, and which way a message goes. Pure: the controller keeps the
// tree of the whole job, an agent that of what is below it, a simulation any.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/world.h"

namespace regroup::node {

inline constexpr core::NodeId kController = 0;  // of every job: the root
inline constexpr std::size_t kRadix = 64;       // children of one parent, unless the user says otherwise

// Of many in a row, by position from 0, who is the parent of the one at `index`, if nobody has more than
// `radix` children; nullopt: the root, which is in front of them all. Radix 0: everybody is the root's.
[[nodiscard]] std::optional<std::size_t> parent_in_row(std::size_t index, std::size_t radix);

class Tree {
 public:
  explicit Tree(core::NodeId root) : root_(root) { entries_.try_emplace(root); }
  [[nodiscard]] core::NodeId root() const { return root_; }

  // False, and nothing happens, where `node` is there already or `parent` is not.
  bool add(core::NodeId node, core::NodeId parent);
  // With all below it. False, as above, also where `parent` is below `node`.
  bool move(core::NodeId node, core::NodeId parent);
  // It stays, with all below it, and has no parent until it is moved. Not the root.
  void detach(core::NodeId node);
  // Its children stay, with all below them, and have no parent until they are moved. Not the root.
  void remove(core::NodeId node);
  // With all below it. Not the root.
  void prune(core::NodeId node);

  [[nodiscard]] bool has(core::NodeId node) const { return entries_.contains(node); }
  [[nodiscard]] std::optional<core::NodeId> parent(core::NodeId node) const;
  [[nodiscard]] std::vector<core::NodeId> children(core::NodeId node) const;
  // `top` first, each before its children; empty if it is not there.
  [[nodiscard]] std::vector<core::NodeId> below(core::NodeId top) const;
  // `node` is `top`, or below it.
  [[nodiscard]] bool within(core::NodeId node, core::NodeId top) const;
  // The child of `from` through whom `node` is reached; nullopt if it is not below `from`.
  [[nodiscard]] std::optional<core::NodeId> next_hop(core::NodeId from, core::NodeId node) const;
  // Steps from the root, which has 0; nullopt for who is not below it.
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
