// Routes messages between the controller and the agents below one process: which child gets which
// bytes, and when messages and aggregated replies go up. Used by the controller and by each agent
// with children. It does no I/O, so a simulation can use it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/agent/tree.h"

namespace regroup::agent {

// The message is a reply to a question to all agents, so it may wait for the replies of the others
// below.
[[nodiscard]] bool is_answer(const Message& message);
// The message is such a question.
[[nodiscard]] bool wants_answer(const Message& message);

// Encoded bytes for one child.
struct Frame {
  proto::NodeId child = 0;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // shared by equal frames
};

// Used by one thread.
class Router {
 public:
  explicit Router(proto::NodeId self) : tree_(self) {}
  [[nodiscard]] Tree& tree() { return tree_; }
  [[nodiscard]] const Tree& tree() const { return tree_; }

  // For the controller: frames that carry `message` to `nodes`, one per child, or two if a child
  // also needs it plain. Nodes that are not below are skipped. `answered`: each node replies.
  // `numbers`: the session number for each node, 0 for none; empty: none has one.
  [[nodiscard]] std::vector<Frame> down(std::span<const proto::NodeId> nodes,
                                        std::span<const std::byte> message, bool answered,
                                        std::span<const std::uint64_t> numbers = {}) const;
  // For an agent: frames for its children from a message that its parent sent.
  [[nodiscard]] std::vector<Frame> relay(const Relayed& relayed);

  // The messages to send up, in this order, after `child` has sent `message`. nullopt: the child
  // claimed to speak for a node that is not below it. Replies wait until all nodes that were asked
  // through here have replied; a later message of a node never overtakes its reply.
  [[nodiscard]] std::optional<std::vector<Message>> up(proto::NodeId child, const Message& message);
  // `child` is lost with all nodes below it, and their replies are not waited for. Returns the
  // messages to send up.
  [[nodiscard]] std::vector<Message> lose(proto::NodeId child);

 private:
  [[nodiscard]] bool may_say(proto::NodeId child, const Relayed& relayed) const;
  void take(Relayed relayed, std::vector<Message>* out);
  void release(std::vector<Message>* out);

  Tree tree_;
  std::set<proto::NodeId> waiting_;  // nodes that have not replied
  std::vector<Relayed> answers_;     // replies that wait for them
};

}  // namespace regroup::agent
