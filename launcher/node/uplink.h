// An agent's link to its parent, the head of the job or another agent. Beats go up from the beginning; a
// parent that is an agent beats, too, and one that has stopped is taken for lost: the head cannot reach us
// through it any more, and will not tell us so. Below another agent, what the head and we say to each other
// is a Conversation, so that it goes on when a link to the head takes the place of that to the parent.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "core/world.h"
#include "launcher/net/secure_channel.h"
#include "launcher/node/conversation.h"
#include "launcher/node/link.h"
#include "launcher/node/messages.h"

namespace regroup::node {

// More than kSilence: the head decides first.
inline constexpr std::chrono::seconds kParentSilence{6};

// Used by the loop's thread. Handlers are called from the loop only, and not after close().
class Uplink {
 public:
  // `below`: the parent is an agent, and this is `node`.
  Uplink(boost::asio::io_context& loop, std::shared_ptr<launcher::SecureChannel> channel, core::NodeId node,
         bool below, Link::Handlers handlers);

  // All but Beat and Heard. From now on these are called instead.
  void set_handlers(Link::Handlers handlers) { handlers_ = std::move(handlers); }
  // What this agent says. Below another one it reaches the head also if it was said while there was no way.
  void send(const Message& message);
  // To the agent above alone, and about this link: for how long this host may be silent.
  void tell_pause(const HostNotice& notice);
  // What one below it says. Lost where there is no way: who said it says it again.
  void pass(const Message& message) { link_->send(message); }
  void pause() { link_->pause(); }
  void resume() { link_->resume(); }
  void close() { link_->close(); }
  // False also between the end of a link and an adoption.
  [[nodiscard]] bool open() const { return link_->open() && !adopting_; }
  [[nodiscard]] std::size_t queued() const { return link_->queued(); }
  // Not after the link has been replaced.
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready) {
    link_->when_queued_at_most(bytes, std::move(ready));
  }

  // The way goes through another agent: where that is lost, adopt() goes on with the conversation.
  [[nodiscard]] bool below() const { return below_; }
  // `channel` leads to the head. It is asked to take us in; below() is false once it has.
  void adopt(std::shared_ptr<launcher::SecureChannel> channel);
  // Called once it has.
  void on_adopted(std::function<void()> adopted) { adopted_ = std::move(adopted); }

 private:
  [[nodiscard]] Link::Handlers taking();
  void beat();
  void take(const Message& message);
  void take_own(const Relayed& relayed, std::size_t at);
  void on_heard(const Heard& heard);
  void say(const Conversation::Said& said);
  void fail(const core::Status& why);

  const core::NodeId node_;
  bool below_, adopting_ = false;
  std::optional<Conversation> conversation_;
  Link::Handlers handlers_;
  std::function<void()> adopted_ = [] {};
  boost::asio::steady_timer timer_;
  int unheard_ = 0;  // beats that did not come
  std::unique_ptr<Link> link_;
};

}  // namespace regroup::node
