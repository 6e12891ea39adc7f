// getpeername and TCP_INFO.
#include "base/tcp_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace regroup::base {
namespace {

Status set_option(int socket, int level, int option, int value, const char* name) {
  if (::setsockopt(socket, level, option, &value, sizeof value) == 0) return {};
  return system_error(fmt::format("setsockopt({})", name), peer_of(socket), errno);
}

}  // namespace

std::string peer_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&storage), &size) == 0) {
    if (storage.ss_family == AF_INET) {
      const auto& four = reinterpret_cast<const sockaddr_in&>(storage);
      if (::inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size()) != nullptr)
        return fmt::format("{}:{}", text.data(), ntohs(four.sin_port));
    } else if (storage.ss_family == AF_INET6) {
      const auto& six = reinterpret_cast<const sockaddr_in6&>(storage);
      const std::uint8_t* const bytes = six.sin6_addr.s6_addr;
      const bool mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
      if (::inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? bytes + 12 : bytes, text.data(),
                      text.size()) != nullptr)
        return fmt::format(fmt::runtime(mapped ? "{}:{}" : "[{}]:{}"), text.data(),
                           ntohs(six.sin6_port));
    }
  }
  return "an unknown address";
}

Status keep_alive(int socket, Duration silence) {
  constexpr int kProbes = 4;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(silence / (kProbes + 1)).count();
  const int every = static_cast<int>(std::max<std::int64_t>(1, seconds));
  REGROUP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  REGROUP_RETURN_IF_ERROR(set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  REGROUP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, every, "TCP_KEEPIDLE"));
  REGROUP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, every, "TCP_KEEPINTVL"));
  return set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes, "TCP_KEEPCNT");
}

Status check_alive(int socket, Duration silence) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    return system_error("getsockopt(TCP_INFO)", peer_of(socket), errno);
  }
  if (info.tcpi_state == TCP_CLOSE) return peer_lost("the connection is broken");
  // Bytes for which a full receiver has no room are not sent, so they are not unacknowledged.
  const std::chrono::milliseconds since(info.tcpi_last_ack_recv);
  if (info.tcpi_unacked == 0 || since < silence) return {};
  return peer_lost(fmt::format("{}: no acknowledgement for {:.1f} s", peer_of(socket),
                               std::chrono::duration<double>(since).count()));
}

}  // namespace regroup::base
