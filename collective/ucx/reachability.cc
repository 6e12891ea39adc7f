// UCX exposes neither its sockets nor their TCP state, so the sockets are found among the open
// files of the process by the address of their peer.
#include "collective/ucx/reachability.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

namespace regroup::collective::ucx {
namespace {

constexpr int kTcp = 6;  // IPPROTO_TCP; <linux/tcp.h> and <netinet/tcp.h> do not go together

// Empty for a connection that is not established yet.
std::optional<SocketAddress> other_end(int fd) {
  SocketAddress out;
  out.bytes = sizeof out.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.bytes) != 0)
    return std::nullopt;
  return out;
}

bool is_at(const SocketAddress& peer, const PeerAddress& address) {
  const SocketAddress wanted = to_socket_address(address);
  if (wanted.storage.ss_family != peer.storage.ss_family) return false;
  const auto at = [&](const SocketAddress& s) {
    return reinterpret_cast<const std::byte*>(&s.storage);
  };
  const bool four = address.family == AF_INET;
  const std::size_t offset =
      four ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
  return std::memcmp(at(peer) + offset, at(wanted) + offset, four ? 4 : 16) == 0;
}

// Empty if `fd` is not a TCP connection.
std::optional<tcp_info> info_of(int fd) {
  tcp_info out{};
  socklen_t bytes = sizeof out;
  if (::getsockopt(fd, kTcp, TCP_INFO, &out, &bytes) != 0) return std::nullopt;
  return out;
}

// Calls `use(fd, peer)` for the connections of this process to `addresses`, until it returns false.
template <class Use>
void for_each_connection(std::span<const PeerAddress> addresses, Use use) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    const auto peer = entry.is_socket(error) ? other_end(fd) : std::nullopt;
    const auto leads_to = [&](const PeerAddress& address) { return is_at(*peer, address); };
    if (peer && std::ranges::any_of(addresses, leads_to) && !use(fd, *peer)) return;
  }
}

}  // namespace

bool host_answers(std::span<const PeerAddress> addresses, base::Duration timeout) {
  // Of what was sent a moment ago the acknowledgement may be delayed, and of an idle connection the
  // last one is old. The kernel waits 200 ms or more before it sends data again, then twice that.
  constexpr std::uint8_t kRetransmissions = 2;
  const auto limit = static_cast<std::uint32_t>(timeout / std::chrono::milliseconds(1));
  bool stalled = false;
  bool answered = false;
  for_each_connection(addresses, [&](int fd, const SocketAddress&) {
    const auto info = info_of(fd);
    if (!info) return true;
    answered = info->tcpi_last_ack_recv < limit || info->tcpi_last_data_recv < limit;
    stalled = stalled || (info->tcpi_unacked > 0 && info->tcpi_retransmits >= kRetransmissions);
    return !answered;
  });
  return answered || !stalled;
}

bool has_unsent(std::span<const PeerAddress> addresses) {
  int bytes = 0;
  for_each_connection(addresses, [&](int fd, const SocketAddress&) {
    if (::ioctl(fd, SIOCOUTQ, &bytes) != 0) bytes = 0;
    return bytes == 0;
  });
  return bytes != 0;
}

bool is_connected(const PeerAddress& address) {
  bool found = false;
  for_each_connection(std::span(&address, 1), [&](int, const SocketAddress& peer) {
    // As in sockaddr_in6.
    const auto port = reinterpret_cast<const sockaddr_in&>(peer.storage).sin_port;
    found = ntohs(port) == address.port;
    return !found;
  });
  return found;
}

}  // namespace regroup::collective::ucx
