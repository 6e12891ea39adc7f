// One reader and one writer over a TlsSession. Messages are cut and verified by proto::FrameReader.
// Order: what was received before a loss is delivered before the loss is reported, so a writer that
// finds the connection broken leaves the report to the reader, unless reading is paused. A handler
// may destroy its owner or replace the handlers: each is called through a copy, and nothing of this
// object is used after `closed`. A failure found inside send() is reported from the loop.
#include "launcher/transport/secure_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "launcher/transport/tcp.h"

namespace regroup::transport {
namespace {

// Bytes read per turn, so that other handlers of the loop run.
constexpr std::size_t kOneTurn = 256 << 10;
constexpr int kLooks = 5;  // checks per `silence`

}  // namespace

SecureChannel::SecureChannel(boost::asio::io_context& loop, base::Fd socket,
                             std::unique_ptr<TlsSession> tls, SecureChannelLimits limits)
    : socket_(loop, socket.get()),
      tls_(std::move(tls)),
      limits_(limits),
      address_(peer_of(socket.release())),
      timer_(loop) {}

SecureChannel::~SecureChannel() = default;

base::Result<std::shared_ptr<SecureChannel>> SecureChannel::make(
    boost::asio::io_context& loop, base::Fd socket, base::Result<std::unique_ptr<TlsSession>> tls,
    SecureChannelLimits limits) {
  if (!tls.ok()) return tls.status();
  REGROUP_RETURN_IF_ERROR(keep_alive(socket.get(), limits.silence));
  return std::shared_ptr<SecureChannel>(
      new SecureChannel(loop, std::move(socket), std::move(*tls), limits));
}

base::Result<std::shared_ptr<SecureChannel>> SecureChannel::client(
    boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, base::Fd socket,
    proto::NodeId server, SecureChannelLimits limits) {
  auto tls = TlsSession::client(std::move(context), socket.get(), server);
  return make(loop, std::move(socket), std::move(tls), limits);
}

base::Result<std::shared_ptr<SecureChannel>> SecureChannel::server(
    boost::asio::io_context& loop, std::shared_ptr<const TlsContext> context, base::Fd socket,
    SecureChannelLimits limits) {
  auto tls = TlsSession::server(std::move(context), socket.get());
  return make(loop, std::move(socket), std::move(tls), limits);
}

void SecureChannel::start(Handlers handlers) {
  set_handlers(std::move(handlers));
  after(limits_.handshake, &SecureChannel::give_up_handshake);
  later(&SecureChannel::shake_hands);
}

// A handler that is running keeps itself alive through its caller's copy.
void SecureChannel::set_handlers(Handlers handlers) {
  handlers_ = std::make_shared<Handlers>(std::move(handlers));
}

void SecureChannel::wait_socket(TlsSession::Want want, void (SecureChannel::*next)()) {
  const auto kind = want == TlsSession::Want::kWrite ? socket_.wait_write : socket_.wait_read;
  socket_.async_wait(kind,
                     [self = shared_from_this(), next](const boost::system::error_code& error) {
                       if (!error && self->open()) (self.get()->*next)();
                     });
}

void SecureChannel::after(base::Duration delay, void (SecureChannel::*next)()) {
  timer_.expires_after(delay);
  timer_.async_wait([self = shared_from_this(), next](const boost::system::error_code& error) {
    if (!error && self->open()) (self.get()->*next)();
  });
}

void SecureChannel::later(void (SecureChannel::*next)()) {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this(), next] {
    if (self->open()) (self.get()->*next)();
  });
}

void SecureChannel::shake_hands() {
  auto want = tls_->handshake();
  if (!want.ok()) return fail(want.status());
  if (*want != TlsSession::Want::kNothing) return wait_socket(*want, &SecureChannel::shake_hands);
  on_authenticated();
}

void SecureChannel::give_up_handshake() {
  if (authenticated_) return;  // the timer expired before it was set again
  fail(base::deadline_exceeded(
      fmt::format("TLS handshake: not complete within {:.1f} s",
                  std::chrono::duration<double>(limits_.handshake).count())));
}

void SecureChannel::on_authenticated() {
  authenticated_ = true;
  after(limits_.silence / kLooks, &SecureChannel::look_after);
  if (const auto handlers = handlers_; handlers->opened && !closing_) handlers->opened();
  if (!open()) return;
  if (!writing_) write();
  if (open() && !reading_) read();
}

void SecureChannel::on_readable() {
  reading_ = false;
  read();
}

void SecureChannel::read() {
  std::array<std::byte, 16 << 10> bytes;
  std::size_t turn = 0;
  for (deliver(); open() && !paused_ && turn < kOneTurn; deliver()) {
    auto got = tls_->read(bytes);
    if (!got.ok()) return fail(got.status());
    if (got->bytes == 0) {
      reading_ = true;
      return wait_socket(got->want, &SecureChannel::on_readable);
    }
    turn += got->bytes;
    if (!closing_) reader_.append(std::span(bytes).first(got->bytes));
  }
  if (!open() || paused_) return;
  reading_ = true;
  later(&SecureChannel::on_readable);
}

void SecureChannel::deliver() {
  while (open() && !closing_ && !paused_) {
    const auto more = deliver_one();
    if (!more.ok()) return fail(more.status());
    if (!*more) return;
  }
}

// False: no complete frame has arrived.
base::Result<bool> SecureChannel::deliver_one() {
  const auto handlers = handlers_;
  if (handlers->payload) {
    REGROUP_ASSIGN_OR_RETURN(const auto payload, reader_.next_payload());
    if (!payload.has_value()) return false;
    REGROUP_RETURN_IF_ERROR(handlers->payload(*payload));
    return true;
  }
  REGROUP_ASSIGN_OR_RETURN(auto message, reader_.next());
  if (!message.has_value()) return false;
  if (handlers->message) handlers->message(*message);
  return true;
}

void SecureChannel::resume() {
  if (!std::exchange(paused_, false) || reading_ || !authenticated_ || ended_) return;
  reading_ = true;
  later(&SecureChannel::on_readable);
}

void SecureChannel::send(const proto::Message& message) {
  if (!open() || closing_ || !failure_.ok()) return;
  queue(proto::encode(message));
  send_queued();
}

void SecureChannel::send_payload(std::span<const std::byte> payload) {
  if (!open() || closing_ || !failure_.ok()) return;
  const auto length = static_cast<std::uint32_t>(payload.size());
  queue(std::as_bytes(std::span(&length, 1)));
  queue(payload);
  send_queued();
}

void SecureChannel::queue(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void SecureChannel::send_queued() {
  if (queued() > limits_.most_queued) {
    return fail_later(
        {base::Code::kResourceExhausted, "the peer does not read: the send queue is full"});
  }
  if (authenticated_ && !writing_) write();
}

void SecureChannel::on_writable() {
  writing_ = false;
  write();
}

void SecureChannel::write() {
  while (open() && queued() > 0) {
    auto done = tls_->write(std::span(out_).subspan(sent_));
    // The reading side reports the loss, after what was received before.
    if (!done.ok()) {
      out_.clear();
      sent_ = 0;
      if (paused_ || closing_) fail_later(done.status());
      break;
    }
    if (done->bytes == 0) {
      writing_ = true;
      wait_socket(done->want, &SecureChannel::on_writable);
      break;
    }
    sent_ += done->bytes;
    sent_total_ += done->bytes;
  }
  if (sent_ == out_.size() || sent_ > limits_.most_queued / 2) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(std::exchange(sent_, 0)));
  }
  if (ready_ && queued() <= ready_at_) later(&SecureChannel::call_ready);
  if (closing_ && queued() == 0) finish_sending();
}

void SecureChannel::when_queued_at_most(std::size_t bytes, std::function<void()> ready) {
  ready_at_ = bytes;
  ready_ = std::move(ready);
  if (queued() <= ready_at_) later(&SecureChannel::call_ready);
}

void SecureChannel::call_ready() {
  if (closing_ || queued() > ready_at_) return;
  if (const auto ready = std::exchange(ready_, nullptr)) ready();
}

void SecureChannel::close_when_sent() {
  if (!open() || closing_) return;
  closing_ = true;
  set_handlers({});
  ready_ = nullptr;
  if (!authenticated_ && queued() == 0) return close();
  resume();  // reads and discards: unread bytes would turn the close into a reset
  if (authenticated_ && queued() == 0) finish_sending();
}

void SecureChannel::finish_sending() {
  if (!open() || std::exchange(ended_, true)) return;
  tls_->say_end();
  ::shutdown(socket_.native_handle(), SHUT_WR);
  if (!reading_) {
    reading_ = true;
    later(&SecureChannel::on_readable);
  }
}

void SecureChannel::set_silence(base::Duration silence) {
  limits_.silence = silence;
  if (open())
    static_cast<void>(
        keep_alive(socket_.native_handle(), silence));  // else the connection was lost
}

void SecureChannel::look_after() {
  base::Status alive = check_alive(socket_.native_handle(), limits_.silence);
  if (!alive.ok()) return fail(alive);
  if (closing_ && std::exchange(sent_at_last_look_, sent_total_) == sent_total_) return close();
  after(closing_ ? limits_.silence : limits_.silence / kLooks, &SecureChannel::look_after);
}

void SecureChannel::close() {
  set_handlers({});
  ready_ = nullptr;
  out_.clear();
  sent_ = 0;
  timer_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void SecureChannel::fail_later(base::Status why) {
  if (!failure_.ok()) return;
  failure_ = std::move(why);
  later(&SecureChannel::report_failure);
}

void SecureChannel::report_failure() { fail(failure_); }

void SecureChannel::fail(const base::Status& why) {
  const auto self = shared_from_this();
  const auto handlers = handlers_;
  const bool tell = !closing_;
  close();
  if (tell && handlers->closed)
    handlers->closed({why.code(), fmt::format("{}: {}", address_, why.message())});
}

}  // namespace regroup::transport
