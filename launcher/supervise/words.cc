// Words over SOCK_SEQPACKET.
#include "launcher/supervise/words.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace regroup::launcher {
namespace {

struct Packet {
  Word word;
  std::int32_t value;
};

union Ancillary {  // aligned room for one descriptor
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

}  // namespace

core::Result<std::pair<core::Fd, core::Fd>> word_sockets() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return core::system_error("socketpair", "guardian and agent", errno);
  }
  return std::pair(core::Fd(fds[0]), core::Fd(fds[1]));
}

WordSocket::WordSocket(boost::asio::io_context& loop, core::Fd socket, Handler handler,
                       std::function<void()> lost)
    : socket_(loop, socket.release()), handler_(std::move(handler)), lost_(std::move(lost)) {
  wait();
}

bool WordSocket::send(Word word, std::int32_t value, int fd) {
  Packet packet{word, value};
  iovec bytes{&packet, sizeof packet};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = &ancillary;
    message.msg_controllen = sizeof ancillary;
    ancillary.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
    std::memcpy(CMSG_DATA(&ancillary.header), &fd, sizeof fd);
  }
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
    Ancillary ancillary{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = &ancillary;
    message.msg_controllen = sizeof ancillary;
    const ssize_t count = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count != sizeof packet) return false;
    int fd = -1;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    }
    handler_(packet.word, packet.value, core::Fd(fd));
  }
}

}  // namespace regroup::launcher
