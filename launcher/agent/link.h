// A connection between the controller and an agent, or two agents: messages of any size over a
// SecureChannel.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launcher/agent/messages.h"
#include "launcher/transport/secure_channel.h"

namespace regroup::agent {

// Used by the loop's thread. Handlers are called from the loop only, and not after close().
class Link {
 public:
  struct Handlers {
    std::function<void(const Message&)> message;
    // Called once; also for bytes that are no message.
    std::function<void(const base::Status&)> closed;
  };
  // `channel` may still be in its handshake.
  Link(std::shared_ptr<transport::SecureChannel> channel, Handlers handlers);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Replaces the handlers.
  void set_handlers(Handlers handlers) { state_->handlers = std::move(handlers); }
  // Never blocks. A message larger than a frame is sent in parts; kMostBytes at most.
  void send(const Message& message);
  // Sends a message, as encode() made it.
  void send_encoded(std::span<const std::byte> bytes);
  [[nodiscard]] std::size_t queued() const { return channel_->queued(); }
  // As SecureChannel's.
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready) {
    channel_->when_queued_at_most(bytes, std::move(ready));
  }
  // Delivers no message until resume().
  void pause() { channel_->pause(); }
  void resume() { channel_->resume(); }
  // As SecureChannel's.
  void set_silence(base::Duration silence) { channel_->set_silence(silence); }
  void close() { channel_->close(); }
  void close_when_sent() { channel_->close_when_sent(); }
  [[nodiscard]] bool open() const { return channel_->open(); }
  [[nodiscard]] const transport::SecureChannel& channel() const { return *channel_; }

  static constexpr std::size_t kMostBytes = 64 << 20;
  // Limits for a channel that carries messages of that size.
  [[nodiscard]] static transport::SecureChannelLimits limits();

 private:
  struct State {
    Handlers handlers;
    std::vector<std::byte> partial;  // parts of an incomplete message
  };
  [[nodiscard]] static base::Status take(State& state, std::span<const std::byte> part);

  const std::shared_ptr<State> state_;
  const std::shared_ptr<transport::SecureChannel> channel_;
};

}  // namespace regroup::agent
