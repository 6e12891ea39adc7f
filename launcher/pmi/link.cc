// Messages over SOCK_SEQPACKET, whose packets are limited: the first byte of each says whether more
// follow.
#include "launcher/pmi/link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/pmi/wire.h"
#include "launcher/transport/ancillary.h"

namespace regroup::pmi {
namespace {

using transport::Ancillary;

constexpr std::size_t kPacketBytes = 32 << 10;
constexpr std::byte kLast{0};
constexpr std::byte kMore{1};

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

base::Result<std::pair<base::Fd, base::Fd>> link_sockets() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return base::system_error("socketpair", "agent and regroup-pmi", errno);
  }
  return std::pair(base::Fd(fds[0]), base::Fd(fds[1]));
}

Link::Link(boost::asio::io_context& loop, base::Fd socket, Handler handler,
           std::function<void(const base::Status&)> lost)
    : socket_(loop, socket.release()),
      handler_(std::move(handler)),
      lost_(std::move(lost)),
      room_(kPacketBytes) {
  wait_read();
}

bool Link::send(const Message& message, base::Fd fd) {
  const std::vector<std::byte> bytes = encode(message);
  if (!socket_.is_open() || bytes.size() > kMaxMessageBytes) return false;
  for (std::size_t at = 0; at < bytes.size(); at += kPacketBytes - 1) {
    const auto part = std::span(bytes).subspan(at, std::min(kPacketBytes - 1, bytes.size() - at));
    Packet& packet = queue_.emplace_back();
    packet.bytes.push_back(at + part.size() == bytes.size() ? kLast : kMore);
    packet.bytes.insert(packet.bytes.end(), part.begin(), part.end());
  }
  queue_.back().fd = std::move(fd);
  if (!waiting_to_write_) write();
  return true;
}

void Link::write() {
  while (socket_.is_open() && !queue_.empty()) {
    Packet& packet = queue_.front();
    iovec bytes{packet.bytes.data(), packet.bytes.size()};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    Ancillary ancillary;
    if (packet.fd.valid()) ancillary.attach(message, packet.fd.get());
    const ssize_t count = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && would_block()) {
      waiting_to_write_ = true;
      return socket_.async_wait(socket_.wait_write, [this](const boost::system::error_code& error) {
        if (error) return;
        waiting_to_write_ = false;
        write();
      });
    }
    // The next read reports the closed link, after all messages that the other side sent before.
    if (count < 0) return queue_.clear();
    queue_.pop_front();
  }
}

void Link::flush() {
  while (socket_.is_open() && !queue_.empty()) {
    pollfd writable{socket_.native_handle(), POLLOUT, 0};
    ::poll(&writable, 1, -1);
    write();
  }
}

void Link::wait_read() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    poll();
    if (socket_.is_open()) wait_read();
  });
}

void Link::poll() {
  while (socket_.is_open() && receive()) {
  }
}

bool Link::receive() {
  iovec bytes{room_.data(), room_.size()};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  Ancillary ancillary;
  ancillary.expect(packet);
  const ssize_t count =
      ::recvmsg(socket_.native_handle(), &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && errno == EINTR) return true;
  if (count < 0 && would_block()) return false;
  // An empty packet may carry one, too.
  base::Fd fd = count < 0 ? base::Fd() : Ancillary::taken(packet);
  if (count <= 0) {
    fail(count < 0 ? base::system_error("recvmsg", "the other side of regroup-pmi", errno)
                   : base::peer_lost("the peer closed the connection"));
    return false;
  }
  return take(std::span(room_).first(static_cast<std::size_t>(count)), std::move(fd));
}

bool Link::take(std::span<const std::byte> packet, base::Fd fd) {
  partial_.insert(partial_.end(), packet.begin() + 1, packet.end());
  if (partial_.size() > kMaxMessageBytes || (packet[0] != kLast && packet[0] != kMore)) {
    fail(base::data_loss("malformed packet between agent and regroup-pmi"));
    return false;
  }
  if (packet[0] == kMore) return true;
  const auto message = decode(std::exchange(partial_, {}));
  if (!message.ok()) {
    fail(message.status());
    return false;
  }
  handler_(*message, std::move(fd));
  return true;
}

void Link::fail(const base::Status& why) {
  boost::system::error_code ignored;
  socket_.close(ignored);
  queue_.clear();
  if (const auto lost = std::exchange(lost_, nullptr)) lost(why);
}

}  // namespace regroup::pmi
