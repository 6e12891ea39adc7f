// An agent's link to its parent, the head of the job or another agent. Beats go up from the beginning; a
// parent that is an agent beats, too, and one that has stopped is taken for lost: the head cannot reach us
// through it any more, and will not tell us so.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "launcher/net/secure_channel.h"
#include "launcher/node/link.h"
#include "launcher/node/messages.h"

namespace regroup::node {

// More than kSilence: the head decides first.
inline constexpr std::chrono::seconds kParentSilence{8};

// Used by the loop's thread. Handlers are called from the loop only, and not after close().
class Uplink {
 public:
  // `beats`: the parent sends some, too.
  Uplink(boost::asio::io_context& loop, std::shared_ptr<launcher::SecureChannel> channel, bool beats,
         Link::Handlers handlers);

  // All but Beat. From now on these are called instead.
  void set_handlers(Link::Handlers handlers) { handlers_ = std::move(handlers); }
  void send(const Message& message) { link_.send(message); }
  void pause() { link_.pause(); }
  void resume() { link_.resume(); }
  void close() { link_.close(); }
  [[nodiscard]] bool open() const { return link_.open(); }
  [[nodiscard]] std::size_t queued() const { return link_.queued(); }
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready) {
    link_.when_queued_at_most(bytes, std::move(ready));
  }

 private:
  void beat();

  const bool beats_;
  Link::Handlers handlers_;
  boost::asio::steady_timer timer_;
  int unheard_ = 0;  // beats that did not come
  Link link_;
};

}  // namespace regroup::node
