// Replaces the system's accept() for libpmix. Every user of this host reaches libpmix's port on the
// loopback, and libpmix trusts the uid that a client sends. This accept() gets the uid from the
// kernel and closes connections of other users, clients and tools, before libpmix reads from them.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

#include "base/fd.h"

namespace {

constexpr int kTries = 3;  // the kernel does not return the table atomically: a line may be missed
constexpr const char* kEstablished = "01";

// Formats an address as /proc/net/tcp does: its words as they lie in memory, and the port.
std::string in_table(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return fmt::format("{:08X}:{:04X}", v4.sin_addr.s_addr, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const auto* words = reinterpret_cast<const std::uint32_t*>(&v6.sin6_addr);
  return fmt::format("{:08X}{:08X}{:08X}{:08X}:{:04X}", words[0], words[1], words[2], words[3],
                     ntohs(v6.sin6_port));
}

// Returns true if there is a socket from `from` to `to` and this user owns it. A socket that is
// already closed has no owner.
bool is_ours(const char* table, const std::string& from, const std::string& to) {
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits;
    uid_t owner = 0;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> owner;
    if (local == from && remote == to)
      return words.good() && state == kEstablished && owner == ::geteuid();
  }
  return false;
}

bool peer_is_ours(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof there;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  if (here.ss_family != AF_INET && here.ss_family != AF_INET6) return true;
  const char* table = here.ss_family == AF_INET ? "/proc/self/net/tcp" : "/proc/self/net/tcp6";
  for (int i = 0; i < kTries; ++i) {
    if (is_ours(table, in_table(there), in_table(here))) return true;
  }
  return false;
}

}  // namespace

// Exported, so that libpmix finds it; no other symbol of this program is.
extern "C" [[gnu::visibility("default")]] int accept(int socket, sockaddr* address,
                                                     socklen_t* size) {
  regroup::base::Fd peer(::accept4(socket, address, size, 0));
  if (!peer.valid() || peer_is_ours(peer.get())) return peer.release();
  errno = EAGAIN;  // as if no connection waited: after another error libpmix stops listening
  return -1;
}
