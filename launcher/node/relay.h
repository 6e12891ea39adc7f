// What an agent does for those below it in the tree: starts its children, passes on what the head says to
// them and what they say to the head. It reads none of that: who may say what is for the head to judge, that
// a child speaks for none but those below it, for us.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "core/status.h"
#include "launcher/node/children.h"
#include "launcher/node/courier.h"
#include "launcher/node/messages.h"
#include "launcher/node/node_agent.h"
#include "launcher/node/uplink.h"

namespace regroup::node {

// Used by the loop's thread.
class Relay {
 public:
  Relay(boost::asio::io_context& loop, NodeAgentOptions options, Uplink& uplink);

  // False: it is not for us, but for the agent itself.
  [[nodiscard]] bool take(const Message& message);
  // Calls `then`, once, when no process of a child is left. Now, perhaps.
  void when_empty(std::function<void()> then);
  // Ends all, and waits for none of them.
  void close();
  // The uplink leads elsewhere now.
  void moved();

  // Of what waits to go up; beyond that, children wait.
  static constexpr std::size_t kMostQueued = 2 << 20;

 private:
  bool on(const StartAgents& start);
  bool on(const Reach& reach);
  bool on(const EndAgent& end);
  bool on(const Relayed& relayed);
  template <class Other>
  bool on(const Other&) {
    return false;
  }
  [[nodiscard]] core::Status make_children(const StartAgents& start);
  void on_child(core::NodeId child, const Message& message);
  void on_lost(core::NodeId child, const core::Status& why);
  void forget(core::NodeId child);
  void on_left();
  void tell(ChildNews::Kind kind, core::NodeId child, std::string text, core::Code code = core::Code::kOk);
  void up(const Message& message);
  void look_at_queue();

  boost::asio::io_context& loop_;
  const NodeAgentOptions options_;
  Uplink& uplink_;
  Courier courier_;  // from here down
  std::unique_ptr<Children> children_;
  std::function<void()> then_;
  bool closed_ = false, waiting_ = false;
};

}  // namespace regroup::node
