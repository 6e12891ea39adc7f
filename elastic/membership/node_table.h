// The nodes that are there: what each can run, and the contacts that their members gave in one generation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/world.h"

namespace regroup::membership {

class NodeTable {
 public:
  struct Node {
    std::string name;
    std::uint32_t slots = 0;
    bool silent = false;  // not heard for a second
  };
  using Load = std::map<core::NodeId, std::uint32_t>;  // processes

  void add(core::NodeId id, const Node& node) { nodes_.try_emplace(id, node); }
  void erase(core::NodeId id) { nodes_.erase(id); }
  [[nodiscard]] Node* find(core::NodeId id);
  [[nodiscard]] bool contains(core::NodeId id) const { return nodes_.contains(id); }
  [[nodiscard]] bool empty() const { return nodes_.empty(); }
  [[nodiscard]] const std::map<core::NodeId, Node>& all() const { return nodes_; }
  [[nodiscard]] std::uint32_t slots() const;

  // Where the next process goes; at least one node is there. Slots are filled node after node, or (by_node)
  // where the fewest processes are; when all are taken, that in any case.
  [[nodiscard]] core::NodeId next(const Load& load, bool by_node) const;

  // Takes what a node says of its members in `world`; everybody's, once each node of the World has spoken.
  [[nodiscard]] std::optional<core::Contacts> gather(core::NodeId from, const core::Contacts& contacts,
                                                     const core::World& world);

 private:
  std::map<core::NodeId, Node> nodes_;
  core::Generation generation_ = 0;  // of contacts_
  std::map<core::NodeId, std::vector<core::Contact>> contacts_;
};

// Those of the members of `world`.
[[nodiscard]] std::vector<core::NodeId> nodes_of(const core::World& world);

}  // namespace regroup::membership
