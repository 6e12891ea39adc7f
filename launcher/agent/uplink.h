// The connection of an agent to its parent, which is the controller or another agent. This end
// sends heartbeats from the start. A parent that is an agent sends them, too, and one that is
// silent counts as lost: the controller can neither reach this agent through it nor tell it so.
// Below another agent, the messages between the controller and this agent are a ReliableSession,
// which survives when a connection to the controller replaces the one to the parent.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "launcher/agent/link.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/reliable_session.h"
#include "launcher/transport/secure_channel.h"
#include "proto/world.h"

namespace regroup::agent {

// More than kSilence, so that the controller declares the parent lost first.
inline constexpr std::chrono::seconds kParentSilence{6};

// Used by the loop's thread. Handlers are called from the loop only, and not after close().
class Uplink {
 public:
  // `below`: the parent is an agent. `node`: this agent.
  Uplink(boost::asio::io_context& loop, std::shared_ptr<transport::SecureChannel> channel,
         proto::NodeId node, bool below, Link::Handlers handlers);

  // Replaces the handlers. They get all messages but Heartbeat and Ack.
  void set_handlers(Link::Handlers handlers) { handlers_ = std::move(handlers); }
  // Sends a message of this agent to the controller. Below another agent it is delivered even if
  // there is no connection now.
  void send(const Message& message);
  // Tells the parent, and nobody else, for how long this host may be silent.
  void send_pause(const HostNotice& notice);
  // Sends a message of an agent below this one. Lost if there is no connection: its sender
  // retransmits it.
  void forward(const Message& message) { link_->send(message); }
  void pause() { link_->pause(); }
  void resume() { link_->resume(); }
  void close() { link_->close(); }
  // False also between the loss of a connection and the end of reparent().
  [[nodiscard]] bool open() const { return link_->open() && !reparenting_; }
  [[nodiscard]] std::size_t queued() const { return link_->queued(); }
  // `ready` is not called if reparent() replaces the connection before.
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready) {
    link_->when_queued_at_most(bytes, std::move(ready));
  }

  // The parent is another agent: if it is lost, reparent() continues the session.
  [[nodiscard]] bool below() const { return below_; }
  // `channel` leads to the controller, which is asked to become the parent; below() is false once
  // it has agreed.
  void reparent(std::shared_ptr<transport::SecureChannel> channel);
  // Called when it has agreed.
  void on_reparented(std::function<void()> reparented) { reparented_ = std::move(reparented); }

 private:
  [[nodiscard]] Link::Handlers make_handlers();
  void schedule_heartbeat();
  void receive(const Message& message);
  void receive_own(const Relayed& relayed, std::size_t at);
  void on_ack(const Ack& ack);
  void transmit(const ReliableSession::Sent& sent);
  void fail(const base::Status& why);

  const proto::NodeId node_;
  bool below_;
  bool reparenting_ = false;
  std::optional<ReliableSession> session_;
  Link::Handlers handlers_;
  std::function<void()> reparented_ = [] {};
  boost::asio::steady_timer timer_;
  int missed_ = 0;  // heartbeat intervals without a message of the parent
  std::unique_ptr<Link> link_;
};

}  // namespace regroup::agent
