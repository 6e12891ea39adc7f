// The nodes of the job with their slots, and the choice of one for the next process.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

class NodeTable {
 public:
  struct Node {
    std::string name;
    std::uint32_t slots = 0;  // without lost ones
    std::uint32_t lost = 0;   // to refused GPUs
    bool for_now = false;     // its missing slots may return
  };

  // Slots are filled node by node, or with `by_node` on the node with the fewest processes.
  explicit NodeTable(bool by_node) : by_node_(by_node) {}

  void add(proto::NodeId id, const Node& node);
  void erase(proto::NodeId id);
  void resize(proto::NodeId id, std::uint32_t slots);
  [[nodiscard]] Node* find(proto::NodeId id);
  [[nodiscard]] const Node* find(proto::NodeId id) const;
  [[nodiscard]] bool contains(proto::NodeId id) const { return nodes_.contains(id); }
  [[nodiscard]] bool empty() const { return nodes_.empty(); }
  [[nodiscard]] const std::map<proto::NodeId, Node>& all() const { return nodes_; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

  // On `nodes` no process is to be started for now: next() is one of them only if no other node has
  // a free slot, but one of them has.
  void hold(const std::set<proto::NodeId>& nodes);
  [[nodiscard]] bool is_held(proto::NodeId id) const { return held_.contains(id); }
  void set_load(proto::NodeId id, std::uint32_t processes);
  // The node for the next process; the table must not be empty. If all slots are in use: the node
  // with the fewest processes.
  [[nodiscard]] proto::NodeId next() const { return std::get<2>(*by_load_.begin()); }

  // True if a node has a slot without a process.
  [[nodiscard]] bool has_room() const {
    return !by_load_.empty() && std::get<0>(*by_load_.begin()) <= Room::kHeld;
  }

 private:
  enum class Room : std::uint8_t { kFree, kHeld, kFull, kNone };  // kNone: no slots
  // The middle one: processes that matter; the smallest key is next.
  using LoadKey = std::tuple<Room, std::uint32_t, proto::NodeId>;
  [[nodiscard]] LoadKey load_key(proto::NodeId id) const;

  const bool by_node_;
  std::map<proto::NodeId, Node> nodes_;
  std::uint32_t slots_ = 0;
  std::map<proto::NodeId, std::uint32_t> load_;
  std::set<LoadKey> by_load_;
  std::set<proto::NodeId> held_;
};

}  // namespace regroup::membership
