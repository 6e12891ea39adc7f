// Addresses of gateways as text, and connecting.
#include "collective/ps/link.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <vector>

#include "base/tcp_peer.h"
#include "base/uninterrupted.h"
#include "base/values.h"
#include "shmem/doorbell.h"

namespace regroup::collective::ps {
namespace {

constexpr std::string_view kScheme = "tcp,";

bool read_token(std::string_view text, LinkToken& out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    unsigned value = 0;
    const char* const at = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(at, at + 2, value, 16);
    if (error != std::errc() || end != at + 2) return false;
    out[i] = static_cast<std::byte>(value);
  }
  return true;
}

}  // namespace

std::string to_text(const GatewayAddress& address) {
  std::string token;
  for (const std::byte byte : address.token)
    token += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return fmt::format("{}{},{},{},{}", kScheme, address.host, address.address, address.port, token);
}

bool is_gateway_address(std::string_view text) { return text.starts_with(kScheme); }

base::Result<GatewayAddress> parse_gateway_address(std::string_view text) {
  const std::vector<std::string> words = base::split(text, ",");
  GatewayAddress out;
  if (words.size() == 5 && words[0] == "tcp" && base::read_number(words[3], out.port) &&
      out.port != 0 && read_token(words[4], out.token)) {
    out.host = words[1];
    out.address = words[2];
    return out;
  }
  return base::invalid_argument(
      "address of a parameter server: expected tcp,HOST,ADDRESS,PORT,TOKEN");
}

base::Result<base::Fd> connect_link(const std::string& address, std::uint16_t port,
                                    base::TimePoint deadline) {
  const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return base::invalid_argument(fmt::format("'{}': expected a numeric address", address));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, &::freeaddrinfo);
  const std::string where = fmt::format("{} port {}", address, port);
  base::Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return base::system_error("socket", where, errno);
  REGROUP_RETURN_IF_ERROR(base::keep_alive(socket.get(), kLinkSilence));
  int error = ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  while (error == EINPROGRESS || error == EINTR) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - shmem::RealPolicy::now());
    if (left.count() <= 0)
      return base::deadline_exceeded(fmt::format("connect({}): no answer in time", where));
    pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    constexpr std::chrono::milliseconds kMost{60'000};
    if (::poll(&ready, 1, static_cast<int>(std::min(left, kMost).count())) <= 0) continue;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0) return socket;
  }
  if (error == 0) return socket;
  return base::unavailable(base::system_error("connect", where, error).message());
}

}  // namespace regroup::collective::ps
