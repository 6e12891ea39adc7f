// The controller's routes to the agents of a job, and the check of their messages: the tree of
// agents, and a ReliableSession with each agent that another agent has started. Pure state: the
// caller does the I/O. docs/design/hosts.md.
//
// Invariants:
// - A message of an agent with a session is accepted once and in order, whatever its path: numbers
//   decide, not connections.
// - An agent speaks for itself and the agents below it. One that speaks for another is refused,
//   unless that other's path has changed: then the message is late, not forged.
// - Unacknowledged messages survive the loss of a path; only forget() drops them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/agent/reliable_session.h"
#include "launcher/agent/router.h"

namespace regroup::agent {

// Used by one thread. An agent is known from add_child() or add_below() until forget(); a call for
// an unknown one does nothing, unless said otherwise.
class AgentRoutes {
 public:
  AgentRoutes() : router_(kController) {}

  // `node` gets a connection of its own to the controller, without a session.
  void add_child(proto::NodeId node);
  // `node` is started by the agent `parent`, and has a session. False: `parent` is not in the tree.
  bool add_below(proto::NodeId node, proto::NodeId parent);
  // The host of `node` gets another node: nothing more is sent to this one, or taken from it.
  void forget(proto::NodeId node) { agents_.erase(node); }

  // Parents, children, subtrees. A lost agent is in no tree.
  [[nodiscard]] const Tree& tree() const { return router_.tree(); }
  [[nodiscard]] bool has_session(proto::NodeId node) const { return session(node) != nullptr; }
  // The controller's child through which messages to `node` go; empty: no route at present.
  [[nodiscard]] std::optional<proto::NodeId> via(proto::NodeId node) const {
    return tree().next_hop(kController, node);
  }
  // The agent that is the parent of `node`; empty: its parent is the controller, or it has none.
  [[nodiscard]] std::optional<proto::NodeId> agent_above(proto::NodeId node) const;

  // --- messages to agents
  // Assigns `message` its number in the session with `node`, which keeps it until it is
  // acknowledged; 0 without a session. Empty: the agent does not acknowledge messages, and the
  // caller must give it up.
  [[nodiscard]] std::optional<std::uint64_t> number(proto::NodeId node,
                                                    const ReliableSession::Bytes& message,
                                                    bool answered);
  // Router::down().
  [[nodiscard]] std::vector<Frame> down(std::span<const proto::NodeId> nodes,
                                        std::span<const std::byte> message, bool answered,
                                        std::span<const std::uint64_t> numbers) const {
    return router_.down(nodes, message, answered, numbers);
  }

  // --- messages from agents
  struct Arrival {
    enum class Verdict : std::uint8_t {
      kIgnore,  // late, or a duplicate
      kRefuse,  // `node` broke the protocol: give it up
      kTake,    // handle `message` of `node`
    };
    Verdict verdict = Verdict::kIgnore;
    proto::NodeId node = 0;
    std::optional<Message> message = {};
    // Send this Ack to `node` before handling the message, which may end the agent.
    std::optional<std::uint64_t> ack = {};
  };
  // `relayed` has arrived on the connection of `child`.
  [[nodiscard]] Arrival accept(proto::NodeId child, const Relayed& relayed);
  // `node` has accepted all messages up to `number`. False: it has no session.
  [[nodiscard]] bool acknowledge(proto::NodeId node, std::uint64_t number);

  // --- loss and reparenting
  // The parent of `node` is lost: what still arrives by the present path of `node` and of all
  // agents below it is late. Returns them, `node` first.
  std::vector<proto::NodeId> change_path(proto::NodeId node);
  [[nodiscard]] bool path_has_changed(proto::NodeId node) const;
  // No message reaches `node` or an agent below it until adopt().
  void detach(proto::NodeId node) { router_.tree().detach(node); }
  // `node` has connected to the controller, which becomes its parent. Returns it and all agents
  // below it, whose sessions both sides then continue: the caller sends each Ack{accepted(),
  // kRetransmit}, and unacked() again.
  std::vector<proto::NodeId> adopt(proto::NodeId node);
  // `node` is lost with all agents below it.
  void prune(proto::NodeId node) { router_.tree().prune(node); }
  // The session with `node`; null: it has none.
  [[nodiscard]] const ReliableSession* session(proto::NodeId node) const;

 private:
  struct Agent {
    std::unique_ptr<ReliableSession> session;
    bool path_changed = false;
  };

  Router router_;
  std::map<proto::NodeId, Agent> agents_;
};

}  // namespace regroup::agent
