// The part of an agent that serves the agents below it in the tree: starts its children and
// forwards messages between them and the controller. It does not read forwarded messages: the
// controller checks who may send what. The relay checks only that a child speaks for no node
// outside its subtree.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/status.h"
#include "launcher/agent/children.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/node_agent.h"
#include "launcher/agent/router.h"
#include "launcher/agent/uplink.h"

namespace regroup::agent {

// Used by the loop's thread.
class Relay {
 public:
  Relay(boost::asio::io_context& loop, NodeAgentOptions options, Uplink& uplink);

  // Handles a message of the parent. False: the message is for the agent itself.
  [[nodiscard]] bool take(const Message& message);
  // Calls `then` once, when all processes of children have exited; during this call if there are
  // none.
  void when_empty(std::function<void()> then);
  // Ends all children without waiting for them.
  void close();
  // The uplink has been replaced.
  void moved();

  // Limit in bytes for the uplink's queue; beyond it the relay reads nothing from children.
  static constexpr std::size_t kMostQueued = 2 << 20;

 private:
  bool on(const StartAgents& start);
  bool on(const AddRoute& reach);
  bool on(const EndAgent& end);
  bool on(const Relayed& relayed);
  template <class Other>
  bool on(const Other&) {
    return false;
  }
  [[nodiscard]] base::Status make_children(const StartAgents& start);
  void on_child(proto::NodeId child, const Message& message);
  void on_lost(proto::NodeId child, const base::Status& why);
  void forget(proto::NodeId child);
  void on_left();
  void tell(ChildEvent::Kind kind, proto::NodeId child, std::string text,
            base::Code code = base::Code::kOk);
  void up(const Message& message);
  void check_queue();

  boost::asio::io_context& loop_;
  const NodeAgentOptions options_;
  Uplink& uplink_;
  Router router_;  // of the subtree of this agent
  std::unique_ptr<Children> children_;
  std::function<void()> then_;
  bool closed_ = false;
  bool waiting_ = false;
};

}  // namespace regroup::agent
