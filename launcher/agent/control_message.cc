// SOCK_SEQPACKET keeps message boundaries, so each packet is one message.
#include "launcher/agent/control_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "launcher/transport/ancillary.h"

namespace regroup::agent {
namespace {

struct Packet {
  ControlMessage message;
  std::int32_t value;
};

}  // namespace

base::Result<std::pair<base::Fd, base::Fd>> control_sockets() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return base::system_error("socketpair", "guardian and agent", errno);
  }
  return std::pair(base::Fd(fds[0]), base::Fd(fds[1]));
}

bool end_requested(int socket) {
  pollfd one{socket, POLLIN, 0};
  if (::poll(&one, 1, 0) <= 0) return false;
  if ((one.revents & (POLLHUP | POLLERR)) != 0) return true;
  const auto peek_from = [socket](int offset) {
    return ::setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset) == 0;
  };
  // Without SO_PEEK_OFF (gVisor, for example) only the first message can be seen.
  const bool all = peek_from(0);
  bool asked = false;
  for (Packet next{}; !asked;) {  // each call peeks at the next message
    const ssize_t count = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    asked = count != sizeof next || next.message == ControlMessage::kStop ||
            next.message == ControlMessage::kKill;
    if (!all) break;
  }
  if (all) peek_from(-1);
  return asked;
}

void discard_control_messages(int socket) {
  Packet packet{};
  while (::recv(socket, &packet, sizeof packet, MSG_DONTWAIT) > 0) {
  }
}

ControlSocket::ControlSocket(boost::asio::io_context& loop, base::Fd socket, Handler handler,
                             std::function<void()> lost)
    : socket_(loop, socket.release()), handler_(std::move(handler)), lost_(std::move(lost)) {
  wait();
}

bool ControlSocket::send(ControlMessage message, std::int32_t value, int fd) {
  Packet packet{message, value};
  iovec bytes{&packet, sizeof packet};
  transport::Ancillary ancillary;
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (fd >= 0) ancillary.attach(header, fd);
  return ::sendmsg(socket_.native_handle(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof packet;
}

void ControlSocket::wait() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    if (receive()) return wait();
    lost_();
  });
}

bool ControlSocket::receive() {
  for (;;) {
    Packet packet{};
    iovec bytes{&packet, sizeof packet};
    transport::Ancillary ancillary;
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    ancillary.expect(message);
    const ssize_t count =
        ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    base::Fd fd = transport::Ancillary::taken(message);
    if (count != sizeof packet) return false;
    handler_(packet.message, packet.value, std::move(fd));
  }
}

}  // namespace regroup::agent
