// Passes one file descriptor over a Unix socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/fd.h"

namespace regroup::transport {

// Buffer for the control message. It must live as long as the msghdr is used.
class Ancillary {
 public:
  // Before sendmsg(): attaches a duplicate of `fd`.
  void attach(msghdr& message, int fd) {
    expect(message);
    auto* header = reinterpret_cast<cmsghdr*>(room_.data());
    header->cmsg_len = CMSG_LEN(sizeof fd);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // Before recvmsg(): accepts one descriptor; the kernel closes further ones.
  void expect(msghdr& message) {
    message.msg_control = room_.data();
    // CMSG_SPACE has room for a second descriptor, which would leak.
    message.msg_controllen = CMSG_LEN(sizeof(int));
  }
  // After recvmsg(): the received descriptor, if any.
  [[nodiscard]] static base::Fd taken(const msghdr& message) {
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      return {};
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return base::Fd(fd);
  }

 private:
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room_{};
};

}  // namespace regroup::transport
