// A path ends with a zero byte. An abstract name begins with one, and its length is that of the
// address, since the kernel compares all bytes of it.
#include "base/unix_address.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace regroup::base {
namespace {

constexpr std::size_t kLongest = sizeof sockaddr_un::sun_path - 1;

Result<UnixAddress> address_at(std::size_t offset, const std::string& name, std::size_t size) {
  if (name.size() > kLongest)
    return invalid_argument(
        fmt::format("socket {}: longer than the {} bytes a name may have", name, kLongest));
  UnixAddress out;
  out.bytes.sun_family = AF_UNIX;
  std::memcpy(out.bytes.sun_path + offset, name.data(), name.size());
  out.size = static_cast<socklen_t>(size);
  return out;
}

}  // namespace

Result<UnixAddress> unix_address(const std::string& path) {
  return address_at(0, path, sizeof(sockaddr_un));
}

Result<UnixAddress> abstract_address(const std::string& name) {
  return address_at(1, name, offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_of_this_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace regroup::base
