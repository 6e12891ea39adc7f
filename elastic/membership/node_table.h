// The nodes that are there: what each can run, and the contacts that their members gave in one generation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/world.h"

namespace regroup::membership {

class NodeTable {
 public:
  struct Node {
    std::string name;
    std::uint32_t slots = 0;
    bool silent = false;     // not heard for a second
    bool for_now = false;    // what it has fewer slots may come again
    std::uint32_t owed = 0;  // members by which the job is smaller if that does not
    std::uint32_t lent = 0;  // members by which the job is larger as long as it is there
    core::Duration asked{};  // when what the next World waits for was, on a clock of the caller
  };

  // Slots are filled node after node, or (by_node) where the fewest processes are.
  explicit NodeTable(bool by_node) : by_node_(by_node) {}

  void add(core::NodeId id, const Node& node);
  void erase(core::NodeId id);
  void resize(core::NodeId id, std::uint32_t slots);
  // What a job that lacks so many members has more by that node, and until take_lent(); no more than `most`.
  std::uint32_t lend(core::NodeId id, std::uint32_t lacked, std::uint32_t most);
  std::uint32_t take_lent(core::NodeId id);
  // What the nodes of an earlier table had lent is lent by those of this one that lend_again().
  void recall_lent(std::uint32_t members) { recalled_ = members; }
  void lend_again(core::NodeId id);
  [[nodiscard]] std::uint32_t lent() const;  // by all, with what was recalled
  void forget_changes();                     // the size of the job has been said, with all that is there
  [[nodiscard]] Node* find(core::NodeId id);
  [[nodiscard]] bool contains(core::NodeId id) const { return nodes_.contains(id); }
  [[nodiscard]] bool empty() const { return nodes_.empty(); }
  [[nodiscard]] const std::map<core::NodeId, Node>& all() const { return nodes_; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }

  void ask_all(core::Duration at);
  [[nodiscard]] core::Duration asked_all() const { return asked_all_; }  // the last time

  void set_load(core::NodeId id, std::uint32_t processes);
  // Where the next process goes; at least one node is there. When all slots are taken, where the fewest
  // processes are.
  [[nodiscard]] core::NodeId next() const { return std::get<2>(*by_load_.begin()); }

  // Takes what a node says of its members in `world`; everybody's, once each node of the World has spoken.
  [[nodiscard]] std::optional<core::Contacts> gather(core::NodeId from, const core::Contacts& contacts,
                                                     const core::World& world);

 private:
  enum class Room : std::uint8_t { kFree, kFull, kNone };         // kNone: it has no slot at all
  using LoadKey = std::tuple<Room, std::uint32_t, core::NodeId>;  // processes that matter; the least is next
  [[nodiscard]] LoadKey load_key(core::NodeId id) const;

  const bool by_node_;
  std::map<core::NodeId, Node> nodes_;
  std::uint32_t slots_ = 0, recalled_ = 0;
  core::Duration asked_all_{};
  std::map<core::NodeId, std::uint32_t> load_;
  std::set<LoadKey> by_load_;
  core::Generation generation_ = 0;  // of what follows
  std::set<core::NodeId> awaited_;   // of its nodes
  std::map<core::NodeId, std::vector<core::Contact>> contacts_;
};

// Those of the members of `world`.
[[nodiscard]] std::vector<core::NodeId> nodes_of(const core::World& world);

}  // namespace regroup::membership
