// Words over SOCK_SEQPACKET.
#include "launcher/supervise/words.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "launcher/supervise/ancillary.h"

namespace regroup::launcher {
namespace {

struct Packet {
  Word word;
  std::int32_t value;
};

}  // namespace

core::Result<std::pair<core::Fd, core::Fd>> word_sockets() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return core::system_error("socketpair", "guardian and agent", errno);
  }
  return std::pair(core::Fd(fds[0]), core::Fd(fds[1]));
}

bool end_is_asked(int socket) {
  pollfd one{socket, POLLIN, 0};
  if (::poll(&one, 1, 0) <= 0) return false;
  if ((one.revents & (POLLHUP | POLLERR)) != 0) return true;
  const auto peek_from = [socket](int offset) {
    return ::setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset) == 0;
  };
  const bool all = peek_from(0);  // else, where a kernel only resembles Linux, only the first can be seen
  bool asked = false;
  for (Packet next{}; !asked;) {  // each is the one behind the last
    const ssize_t count = ::recv(socket, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    asked = count != sizeof next || next.word == Word::kStop || next.word == Word::kKill;
    if (!all) break;
  }
  if (all) peek_from(-1);
  return asked;
}

void forget_words(int socket) {
  Packet packet{};
  while (::recv(socket, &packet, sizeof packet, MSG_DONTWAIT) > 0) {
  }
}

WordSocket::WordSocket(boost::asio::io_context& loop, core::Fd socket, Handler handler,
                       std::function<void()> lost)
    : socket_(loop, socket.release()), handler_(std::move(handler)), lost_(std::move(lost)) {
  wait();
}

bool WordSocket::send(Word word, std::int32_t value, int fd) {
  Packet packet{word, value};
  iovec bytes{&packet, sizeof packet};
  Ancillary ancillary;
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) ancillary.attach(message, fd);
  return ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof packet;
}

void WordSocket::wait() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    if (receive()) return wait();
    lost_();
  });
}

bool WordSocket::receive() {
  for (;;) {
    Packet packet{};
    iovec bytes{&packet, sizeof packet};
    Ancillary ancillary;
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    ancillary.expect(message);
    const ssize_t count = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    core::Fd fd = Ancillary::taken(message);
    if (count != sizeof packet) return false;
    handler_(packet.word, packet.value, std::move(fd));
  }
}

}  // namespace regroup::launcher
