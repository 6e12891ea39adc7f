// One descriptor beside the bytes of a Unix socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "core/fd.h"

namespace regroup::launcher {

// Room for the control message; lives as long as the msghdr is used.
class Ancillary {
 public:
  // Before sendmsg: passes a copy of `fd`.
  void attach(msghdr& message, int fd) {
    expect(message);
    auto* header = reinterpret_cast<cmsghdr*>(room_.data());
    header->cmsg_len = CMSG_LEN(sizeof fd);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  // Before recvmsg: what comes beyond one descriptor is closed by the kernel.
  void expect(msghdr& message) {
    message.msg_control = room_.data();
    message.msg_controllen =
        CMSG_LEN(sizeof(int));  // CMSG_SPACE would take a second one, for nobody to close
  }
  // After recvmsg: the descriptor that came, if any.
  [[nodiscard]] static core::Fd taken(const msghdr& message) {
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return {};
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return core::Fd(fd);
  }

 private:
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room_{};
};

}  // namespace regroup::launcher
