// Both ends copy between a non-blocking pipe and messages.
#include "launcher/agent/stream.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/agent/messages.h"

namespace regroup::agent {
namespace {

void close_pipe(boost::asio::posix::stream_descriptor& pipe) {
  boost::system::error_code ignored;
  pipe.close(ignored);
}

}  // namespace

StreamSource::StreamSource(boost::asio::io_context& loop, base::Fd pipe, Send send)
    : pipe_(loop, pipe.release()), send_(std::move(send)), window_(kWindow) {}

void StreamSource::wait() {
  if (waiting_ || window_ == 0 || !pipe_.is_open()) return;
  waiting_ = true;
  pipe_.async_wait(pipe_.wait_read,
                   [self = shared_from_this()](const boost::system::error_code& error) {
                     self->waiting_ = false;
                     if (!error) self->read();
                   });
}

void StreamSource::read() {
  std::array<std::byte, kPiece> bytes;
  const ssize_t count =
      ::read(pipe_.native_handle(), bytes.data(), std::min(bytes.size(), window_));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
  if (count <= 0) {
    close_pipe(pipe_);
    return send_({}, true);
  }
  window_ -= static_cast<std::size_t>(count);
  unanswered_ += static_cast<std::size_t>(count);
  send_(std::span(bytes).first(static_cast<std::size_t>(count)), false);
  wait();
}

void StreamSource::consumed(std::size_t bytes) {
  bytes = std::min(bytes, unanswered_);
  unanswered_ -= bytes;
  window_ += bytes;
  wait();
}

void StreamSource::stop() {
  unanswered_ = 0;
  close_pipe(pipe_);
}

bool StreamSource::idle() {
  int held = 0;
  if (unanswered_ > 0) return false;
  return !pipe_.is_open() || ::ioctl(pipe_.native_handle(), FIONREAD, &held) != 0 || held == 0;
}

StreamTarget::StreamTarget(boost::asio::io_context& loop, base::Fd pipe, Consumed consumed)
    : pipe_(loop, pipe.release()), consumed_(std::move(consumed)) {}

void StreamTarget::write(std::span<const std::byte> bytes, bool end) {
  if (broken_) return consumed_(bytes.size(), true);
  ending_ = ending_ || end;
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  if (!waiting_) push();
}

void StreamTarget::push() {
  std::size_t count = 0;
  while (sent_ < pending_.size()) {
    const ssize_t wrote =
        ::write(pipe_.native_handle(), pending_.data() + sent_, pending_.size() - sent_);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    if (wrote < 0) return fail();
    sent_ += static_cast<std::size_t>(wrote);
    count += static_cast<std::size_t>(wrote);
  }
  const bool all = sent_ == pending_.size();
  if (all) {
    pending_.clear();
    sent_ = 0;
    if (ending_) close_pipe(pipe_);
  }
  if (count > 0) consumed_(count, false);
  if (!all) wait();
}

void StreamTarget::wait() {
  waiting_ = true;
  pipe_.async_wait(pipe_.wait_write,
                   [self = shared_from_this()](const boost::system::error_code& error) {
                     self->waiting_ = false;
                     if (!error) self->push();
                   });
}

void StreamTarget::fail() {
  broken_ = true;
  close_pipe(pipe_);
  const std::size_t rest = pending_.size() - std::exchange(sent_, 0);
  pending_.clear();
  consumed_(rest, true);
}

void StreamTarget::stop() {
  broken_ = true;
  close_pipe(pipe_);
}

}  // namespace regroup::agent
