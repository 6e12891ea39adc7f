// AF_UNIX stream sockets with SO_PEERCRED.
#include "launcher/transport/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unix_address.h"

namespace regroup::transport {

base::Status make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return base::system_error("mkdir", path, errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return base::system_error("lstat", path, errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return base::invalid_argument(
        fmt::format("{}: expected a directory of user {} with mode 0700", path, ::geteuid()));
  }
  return {};
}

base::Result<base::Fd> connect_unix(const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::unix_address(path));
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::system_error("socket", "AF_UNIX", errno);
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    return base::system_error("connect", path, errno);
  }
  return socket;
}

base::Status Listener::start(const std::string& path) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::unix_address(path));
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return base::system_error("socket", "AF_UNIX", errno);
  ::unlink(path.c_str());
  if (::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return base::system_error("bind", path, errno);
  }
  socket_.assign(socket.release());
  wait();
  return {};
}

void Listener::wait() {
  socket_.async_wait(socket_.wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    base::Fd client(
        ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ucred peer{};
    socklen_t size = sizeof peer;
    if (client.valid() && ::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        peer.uid == ::geteuid()) {
      accepted_(std::move(client), peer.pid);
    }
    wait();
  });
}

}  // namespace regroup::transport
