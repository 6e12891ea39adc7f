// How what the head and agents below it say to each other goes through an agent on the way, or leaves the
// head: which child gets which bytes, and what goes up when. Pure, so that a simulation has it as it is.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "launcher/node/messages.h"
#include "launcher/node/tree.h"

namespace regroup::node {

// A message of an agent that all agents are asked for, so that it may wait for those of the others below us.
[[nodiscard]] bool is_answer(const Message& message);
// A message to an agent that has such an answer.
[[nodiscard]] bool wants_answer(const Message& message);

struct Parcel {
  core::NodeId child = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // the same for all that get the same
};

class Courier {
 public:
  explicit Courier(core::NodeId self) : tree_(self) {}
  [[nodiscard]] Tree& tree() { return tree_; }
  [[nodiscard]] const Tree& tree() const { return tree_; }

  // The head's: to `nodes`; those that are not below it are left out. Each child gets it once. `answered`:
  // they all answer it. `numbers`: of each, 0 for one who has none; empty: nobody has.
  [[nodiscard]] std::vector<Parcel> down(std::span<const core::NodeId> nodes,
                                         std::span<const std::byte> message, bool answered,
                                         std::span<const std::uint64_t> numbers = {}) const;
  // An agent's: what has come from above for those below.
  [[nodiscard]] std::vector<Parcel> relay(const Relayed& relayed);

  // What goes up, in this order, now that `child` has said `message`; nothing: it spoke for somebody who is
  // not below it. Answers wait until the last of those who were asked through us has come; what else one of
  // them says later is not said before.
  [[nodiscard]] std::optional<std::vector<Message>> up(core::NodeId child, const Message& message);
  // `child` is gone, with all below it: nobody waits for them. What goes up.
  [[nodiscard]] std::vector<Message> lose(core::NodeId child);

 private:
  [[nodiscard]] bool may_say(core::NodeId child, const Relayed& relayed) const;
  void take(Relayed relayed, std::vector<Message>* out);
  void release(std::vector<Message>* out);

  Tree tree_;
  std::set<core::NodeId> waiting_;  // for the answers of these ...
  std::vector<Relayed> answers_;    // ... these have come
};

}  // namespace regroup::node
