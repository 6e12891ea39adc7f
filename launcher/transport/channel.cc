// Reads into a FrameReader, writes what the socket takes at once and queues the rest. A file
// descriptor goes with the first byte of its message, so the receiver has it when the message is
// complete.
#include "launcher/transport/channel.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/transport/ancillary.h"

namespace regroup::transport {
namespace {

constexpr std::size_t kMostQueued = 8 << 20;

}  // namespace

Channel::Channel(boost::asio::io_context& loop, base::Fd socket, Handler handler,
                 std::function<void(const base::Status&)> closed)
    : socket_(loop, socket.release()), handler_(std::move(handler)), closed_(std::move(closed)) {}

void Channel::wait_read() {
  socket_.async_wait(socket_.wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error && self->open()) self->read();
                     });
}

void Channel::read() {
  std::array<std::byte, 64 << 10> bytes;
  const ssize_t count = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return wait_read();
  if (count < 0) return fail(base::system_error("recv", "control connection", errno));
  if (count == 0) return fail(base::peer_lost("the peer closed the connection"));
  if (!closing_) reader_.append(std::span(bytes).first(static_cast<std::size_t>(count)));
  deliver();
  if (open()) wait_read();
}

void Channel::deliver() {
  while (open() && !closing_) {
    auto message = reader_.next();
    if (!message.ok()) return fail(message.status());
    if (!message->has_value()) return;
    handler_(**message);
  }
}

bool Channel::send(const proto::Message& message, int fd) {
  if (!open() || closing_) return true;
  std::vector<std::byte> bytes = proto::encode(message);
  if (bytes.size() > sizeof(std::uint32_t) + proto::kMaxFrameBytes) return false;
  queue_.push_back({std::move(bytes), 0, base::Fd(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, 3))});
  queued_ += queue_.back().bytes.size();
  if (queued_ > kMostQueued) {
    fail(base::resource_exhausted("the peer does not read: the send queue is full"));
  } else if (!waiting_to_write_) {
    write();
  }
  return true;
}

void Channel::write() {
  while (open() && !queue_.empty()) {
    const ssize_t count = write_some(queue_.front());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      waiting_to_write_ = true;
      socket_.async_wait(socket_.wait_write,
                         [self = shared_from_this()](const boost::system::error_code& error) {
                           self->waiting_to_write_ = false;
                           if (!error) self->write();
                         });
      return;
    }
    // The reading side reports the loss, after what was received before.
    if (count < 0) return queue_.clear();
    queue_.front().sent += static_cast<std::size_t>(count);
    queued_ -= static_cast<std::size_t>(count);
    if (queue_.front().sent == queue_.front().bytes.size()) queue_.pop_front();
  }
  if (closing_) close();
}

ssize_t Channel::write_some(Frame& frame) {
  iovec bytes{frame.bytes.data() + frame.sent, frame.bytes.size() - frame.sent};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  Ancillary ancillary;
  if (frame.fd.valid()) ancillary.attach(message, frame.fd.get());
  const ssize_t count = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count > 0) frame.fd.reset();
  return count;
}

void Channel::close_when_sent() {
  closing_ = true;
  closed_ = nullptr;
  if (queue_.empty()) close();
}

void Channel::close() {
  closed_ = nullptr;
  queue_.clear();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void Channel::fail(const base::Status& why) {
  const auto self = shared_from_this();
  const auto closed = std::exchange(closed_, nullptr);
  close();
  if (closed) closed(why);
}

}  // namespace regroup::transport
