// Control messages between hosts: the frames of Channel inside TLS 1.3, with a peer that has
// proved that it belongs to the job. The handshake has a deadline, queues are bounded, and reading
// can be paused.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/transport/tls_session.h"
#include "proto/message.h"
#include "proto/wire.h"

namespace regroup::transport {

struct SecureChannelLimits {
  base::Duration handshake = std::chrono::seconds(5);
  // The peer is lost if it does not acknowledge sent bytes (by TCP) for this time.
  base::Duration silence = std::chrono::seconds(5);
  std::size_t most_queued = 8 << 20;  // limit of bytes in the send queue
};

// Used by the loop's thread; kept alive by its own pending operations until it is closed. Handlers
// are called from the loop only, never from within one of the functions below.
class SecureChannel : public std::enable_shared_from_this<SecureChannel> {
 public:
  using Handler = std::function<void(const proto::Message&)>;
  // Returning an error ends the connection.
  using PayloadHandler = std::function<base::Status(std::span<const std::byte> payload)>;
  struct Handlers {
    Handler message;
    // Called once when the peer has closed, failed to authenticate, or sent an invalid message; not
    // after close(). Messages received before were delivered, unless reading was paused.
    std::function<void(const base::Status&)> closed;
    // Called once, when both sides are authenticated. May be empty.
    std::function<void()> opened = {};
    // Replaces `message` on connections with messages of another format.
    PayloadHandler payload = {};
  };

  // `socket` is connected; `server` is the node id expected there.
  [[nodiscard]] static base::Result<std::shared_ptr<SecureChannel>> client(
      boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, base::Fd socket,
      proto::NodeId server, SecureChannelLimits limits = {});
  [[nodiscard]] static base::Result<std::shared_ptr<SecureChannel>> server(
      boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, base::Fd socket,
      SecureChannelLimits limits = {});
  ~SecureChannel();

  // Starts the handshake.
  void start(Handlers handlers);
  // Replaces the handlers. Any time, also from within a handler.
  void set_handlers(Handlers handlers);

  // Queues a message, also during the handshake. Never blocks. A receiver with more than
  // most_queued bytes pending counts as lost: callers that send much check queued() first.
  void send(const proto::Message& message);
  // Sends a frame with this payload, of at most proto::kMaxFrameBytes.
  void send_payload(std::span<const std::byte> payload);
  // Bytes in the send queue, without those in the kernel.
  [[nodiscard]] std::size_t queued() const { return out_.size() - sent_; }
  // Calls `ready` once, when at most `bytes` are queued. Replaces an earlier request.
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready);

  // Delivers no message until resume(), not even received ones. At most a frame and the kernel's
  // buffer fill up here, then the sender's queue grows. The handler is not called after this
  // returns.
  void pause() { paused_ = true; }
  void resume();

  // Sets the silence limit: the peer's host is about to pause.
  void set_silence(base::Duration silence);

  // No handler is called after these calls. close_when_sent() sends what is queued, waits until the
  // peer has received it, and gives up when there is no progress for `silence`.
  void close_when_sent();
  void close();
  [[nodiscard]] bool open() const { return socket_.is_open(); }
  [[nodiscard]] bool authenticated() const { return authenticated_; }
  // For the server during the handshake: see TlsSession::proved().
  [[nodiscard]] bool proved() const { return tls_->proved(); }
  // The peer's authenticated node id; meaningful once authenticated().
  [[nodiscard]] proto::NodeId peer() const { return tls_->peer(); }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  SecureChannel(boost::asio::io_context& loop, base::Fd socket, std::unique_ptr<TlsSession> tls,
                SecureChannelLimits limits);
  [[nodiscard]] static base::Result<std::shared_ptr<SecureChannel>> make(
      boost::asio::io_context& loop, base::Fd socket, base::Result<std::unique_ptr<TlsSession>> tls,
      SecureChannelLimits limits);

  void wait_socket(TlsSession::Want want, void (SecureChannel::*next)());
  void after(base::Duration delay, void (SecureChannel::*next)());
  void later(void (SecureChannel::*next)());
  void shake_hands();
  void give_up_handshake();
  void on_authenticated();
  void on_readable();
  void read();
  void deliver();
  [[nodiscard]] base::Result<bool> deliver_one();
  void queue(std::span<const std::byte> bytes);
  void send_queued();
  void on_writable();
  void write();
  void finish_sending();
  void look_after();
  void call_ready();
  void fail_later(base::Status why);
  void report_failure();
  void fail(const base::Status& why);

  boost::asio::posix::stream_descriptor socket_;
  const std::unique_ptr<TlsSession> tls_;
  SecureChannelLimits limits_;
  const std::string address_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Handlers> handlers_ = std::make_shared<Handlers>();
  proto::FrameReader reader_;
  std::vector<std::byte> out_;  // [sent_, end) is queued
  std::size_t sent_ = 0;
  std::size_t sent_total_ = 0, sent_at_last_look_ = 0;
  std::size_t ready_at_ = 0;
  std::function<void()> ready_;
  base::Status failure_;  // to be reported from the loop
  bool authenticated_ = false, paused_ = false, closing_ = false, ended_ = false;
  bool reading_ = false, writing_ = false;  // a wait for reading, for writing, is pending
};

}  // namespace regroup::transport
