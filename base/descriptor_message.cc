// The descriptors come with the first byte of the text, which a newline ends.
#include "base/descriptor_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace regroup::base {
namespace {

constexpr std::size_t kRoom = CMSG_SPACE(kMostDescriptors * sizeof(int));

// Moves the descriptors of a received message to `out`.
void take(const msghdr& message, std::vector<Fd>& out) {
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      out.emplace_back(fd);
    }
  }
}

}  // namespace

Status send_descriptors(int socket, std::string_view text, std::span<const int> descriptors) {
  if (descriptors.size() > kMostDescriptors || text.size() >= kMostDescriptorText ||
      text.find('\n') != std::string_view::npos)
    return invalid_argument("descriptors: the message is too large, or has a newline");
  std::string line(text);
  line += '\n';
  iovec part{line.data(), line.size()};
  alignas(cmsghdr) std::array<char, kRoom> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return system_error("sendmsg", "descriptors", errno);
  if (static_cast<std::size_t>(sent) != line.size())
    return resource_exhausted("descriptors: the socket has no room for the message");
  return {};
}

Result<DescriptorMessage> receive_descriptors(int socket, TimePoint deadline) {
  DescriptorMessage out;
  std::array<char, kMostDescriptorText> bytes{};
  alignas(cmsghdr) std::array<char, kRoom> room{};
  while (true) {
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got > 0) {
      take(message, out.descriptors);
      out.text.append(bytes.data(), static_cast<std::size_t>(got));
      if ((message.msg_flags & MSG_CTRUNC) != 0)
        return data_loss("descriptors: this process has too many open files for all of them");
      if (out.text.back() == '\n') {
        out.text.pop_back();
        return out;
      }
      if (out.text.size() >= kMostDescriptorText)
        return data_loss("descriptors: the message is too long");
      continue;
    }
    if (got == 0) return peer_lost("descriptors: the peer has closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error("recvmsg", "descriptors", errno);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return deadline_exceeded("descriptors: no message came");
    pollfd poll{socket, POLLIN, 0};
    constexpr std::chrono::milliseconds kMost(60'000);
    if (::poll(&poll, 1, static_cast<int>(std::min(left, kMost).count())) < 0 && errno != EINTR)
      return system_error("poll", "descriptors", errno);
  }
}

}  // namespace regroup::base
