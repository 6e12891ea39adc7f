// Control messages between hosts: launcher::Channel's frames inside TLS 1.3, of a peer that has proved that
// it belongs to the job. Handshake with a deadline, bounded queues, and reading that can be stopped and
// resumed.
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

#include "core/clock.h"
#include "core/fd.h"
#include "core/message.h"
#include "core/status.h"
#include "core/wire.h"
#include "launcher/net/tls_session.h"

namespace regroup::launcher {

struct SecureChannelLimits {
  core::Duration handshake = std::chrono::seconds(5);
  core::Duration silence =
      std::chrono::seconds(5);        // what is sent finds no acknowledgement: the peer is lost
  std::size_t most_queued = 8 << 20;  // bytes that wait to be sent
};

// Used by the loop's thread; kept alive by its own pending operations until it is closed. Handlers are called
// from the loop only, never from within one of the functions below.
class SecureChannel : public std::enable_shared_from_this<SecureChannel> {
 public:
  using Handler = std::function<void(const core::Message&)>;
  // What this returns, if it is not ok, ends the connection.
  using PayloadHandler = std::function<core::Status(std::span<const std::byte> payload)>;
  struct Handlers {
    Handler message;
    // Once, when the other side went away, did not prove itself, or sent bytes that are no message; not after
    // close(). What had been received before was delivered, unless reading was stopped.
    std::function<void(const core::Status&)> closed;
    std::function<void()> opened = {};  // once: both sides have proved themselves. May be empty
    PayloadHandler payload = {};        // in place of `message`, on links that carry messages of their own
  };

  // `socket` is connected; `server` is the node that is expected there.
  [[nodiscard]] static core::Result<std::shared_ptr<SecureChannel>> client(
      boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, core::Fd socket,
      core::NodeId server, SecureChannelLimits limits = {});
  [[nodiscard]] static core::Result<std::shared_ptr<SecureChannel>> server(
      boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, core::Fd socket,
      SecureChannelLimits limits = {});
  ~SecureChannel();

  // Begins the handshake.
  void start(Handlers handlers);
  // From now on these are called instead. Any time, also from within a handler.
  void set_handlers(Handlers handlers);

  // Queues a message; before the handshake is over too. Never blocks. A receiver that lets more than
  // most_queued bytes pile up is taken for gone: who sends much asks queued() first.
  void send(const core::Message& message);
  // The same for a frame with this inside, of at most core::kMaxFrameBytes.
  void send_payload(std::span<const std::byte> payload);
  // Bytes that wait here, beside those that the kernel has taken.
  [[nodiscard]] std::size_t queued() const { return out_.size() - sent_; }
  // Calls `ready` once, when no more than `bytes` wait. Replaces what was asked before.
  void when_queued_at_most(std::size_t bytes, std::function<void()> ready);

  // Delivers no message until resume(), even those that have come; at most a frame and what the kernel
  // buffers pile up, then the sender's queue grows. Once this returns, the handler is not called.
  void pause() { paused_ = true; }
  void resume();

  // From now on what is sent may find no acknowledgement for so long: the peer's host is about to stand
  // still.
  void set_silence(core::Duration silence);

  // No handler is called any more, from now on. The first sends what is queued, waits for the other side to
  // take it all, and gives up when nothing moves for `silence`.
  void close_when_sent();
  void close();
  [[nodiscard]] bool open() const { return socket_.is_open(); }
  [[nodiscard]] bool authenticated() const { return authenticated_; }
  // The server's side, while the handshake goes on: see TlsSession::proved().
  [[nodiscard]] bool proved() const { return tls_->proved(); }
  // The other's node id, proved; meaningful once authenticated().
  [[nodiscard]] core::NodeId peer() const { return tls_->peer(); }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  SecureChannel(boost::asio::io_context& loop, core::Fd socket, std::unique_ptr<TlsSession> tls,
                SecureChannelLimits limits);
  [[nodiscard]] static core::Result<std::shared_ptr<SecureChannel>> make(
      boost::asio::io_context& loop, core::Fd socket, core::Result<std::unique_ptr<TlsSession>> tls,
      SecureChannelLimits limits);

  void wait_socket(TlsSession::Want want, void (SecureChannel::*next)());
  void after(core::Duration delay, void (SecureChannel::*next)());
  void later(void (SecureChannel::*next)());
  void shake_hands();
  void give_up_handshake();
  void on_authenticated();
  void on_readable();
  void read();
  void deliver();
  [[nodiscard]] core::Result<bool> deliver_one();
  void queue(std::span<const std::byte> bytes);
  void send_queued();
  void on_writable();
  void write();
  void finish_sending();
  void look_after();
  void call_ready();
  void fail_later(core::Status why);
  void report_failure();
  void fail(const core::Status& why);

  boost::asio::posix::stream_descriptor socket_;
  const std::unique_ptr<TlsSession> tls_;
  SecureChannelLimits limits_;
  const std::string address_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Handlers> handlers_ = std::make_shared<Handlers>();
  core::FrameReader reader_;
  std::vector<std::byte> out_;  // [sent_, end) is queued
  std::size_t sent_ = 0;
  std::size_t sent_total_ = 0, sent_at_last_look_ = 0;
  std::size_t ready_at_ = 0;
  std::function<void()> ready_;
  core::Status failure_;  // to be reported from the loop
  bool authenticated_ = false, paused_ = false, closing_ = false, ended_ = false;
  bool reading_ = false, writing_ = false;  // an operation waits that will read, write
};

}  // namespace regroup::launcher
