// Rank 0 sends each rank one message: a hash of the options, which must be the same in all ranks,
// and the descriptor.
#include "tools/bench/descriptor_passing.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/unix_address.h"

namespace regroup::bench {
namespace {

using base::Status;

constexpr auto kRetry = std::chrono::milliseconds(2);

struct Address {
  explicit Address(const std::string& name) {
    at.sun_family = AF_UNIX;  // sun_path begins with a zero byte: abstract
    const std::size_t bytes = std::min(name.size(), sizeof at.sun_path - 1);
    std::memcpy(&at.sun_path[1], name.data(), bytes);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }

  sockaddr_un at{};
  socklen_t size = 0;
};

base::Result<base::Fd> open_socket() {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::system_error("socket", "AF_UNIX", errno);
  return socket;
}

bool wait_readable(int fd, base::TimePoint deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - base::SystemClock().now()).count();
    if (left <= 0) return false;
    pollfd poll{fd, POLLIN, 0};
    if (::poll(&poll, 1, static_cast<int>(std::min<long>(left, 60'000))) > 0) return true;
  }
}

// The message with its descriptor, for sendmsg and recvmsg.
struct Envelope {
  Envelope() {
    part = {&hash, sizeof hash};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }

  std::uint64_t hash = 0;
  iovec part{};
  msghdr header{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
};

Status send_descriptor(int to, int fd, const std::string& agreed) {
  Envelope envelope;
  envelope.hash = std::hash<std::string>()(agreed);
  cmsghdr* control = CMSG_FIRSTHDR(&envelope.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  if (::sendmsg(to, &envelope.header, MSG_NOSIGNAL) < 0) {
    return base::system_error("sendmsg", "the arena to another rank", errno);
  }
  return {};
}

base::Result<base::Fd> receive_descriptor(int from, const std::string& agreed) {
  Envelope envelope;
  const ssize_t bytes = ::recvmsg(from, &envelope.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* control = CMSG_FIRSTHDR(&envelope.header);
  if (bytes != sizeof envelope.hash || control == nullptr || control->cmsg_type != SCM_RIGHTS) {
    return base::peer_lost("rank 0 ended before it had sent the shared memory to this rank");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(control), sizeof fd);
  base::Fd out(fd);
  if (envelope.hash != std::hash<std::string>()(agreed)) {
    return base::invalid_argument("the ranks were started with different options");
  }
  return out;
}

}  // namespace

Status give_descriptor(const std::string& name, int fd, int size, const std::string& agreed,
                       base::TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(auto socket, open_socket());
  const Address address(name);
  if (::bind(socket.get(), address.get(), address.size) != 0)
    return base::system_error("bind", name, errno);
  if (::listen(socket.get(), size) != 0) return base::system_error("listen", name, errno);
  for (int given = 1; given < size;) {
    if (!wait_readable(socket.get(), deadline)) {
      return base::deadline_exceeded(
          fmt::format("only {} of {} ranks have started (--timeout)", given, size));
    }
    const base::Fd peer(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.valid() || !base::is_of_this_user(peer.get())) continue;
    REGROUP_RETURN_IF_ERROR(send_descriptor(peer.get(), fd, agreed));
    ++given;
  }
  return {};
}

base::Result<base::Fd> take_descriptor(const std::string& name, int rank, const std::string& agreed,
                                       base::TimePoint deadline) {
  const Address address(name);
  for (;;) {
    REGROUP_ASSIGN_OR_RETURN(auto socket, open_socket());
    if (::connect(socket.get(), address.get(), address.size) == 0) {
      if (!base::is_of_this_user(socket.get())) {
        return base::unavailable(fmt::format("{}: another user listens there", name));
      }
      if (wait_readable(socket.get(), deadline)) return receive_descriptor(socket.get(), agreed);
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return base::system_error("connect", name, errno);
    }
    if (base::SystemClock().now() >= deadline) {
      return base::deadline_exceeded(
          fmt::format("rank {}: rank 0 has not started (--timeout)", rank));
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace regroup::bench
