// Addresses of Unix sockets, ready for bind() and connect(), and the user at the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "base/status.h"

namespace regroup::base {

struct UnixAddress {
  sockaddr_un bytes{};
  socklen_t size = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// Address of the socket in the file `path`. kInvalidArgument: the path is too long.
[[nodiscard]] Result<UnixAddress> unix_address(const std::string& path);
// Address of an abstract socket of this network namespace. kInvalidArgument: the name is too long.
[[nodiscard]] Result<UnixAddress> abstract_address(const std::string& name);
// True if the process at the other end of the connected `socket` runs as this user.
[[nodiscard]] bool is_of_this_user(int socket);

}  // namespace regroup::base
