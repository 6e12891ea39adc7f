// A packet holds a frame without its length, which the packet itself has.
#include "launcher/transport/packet_socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>

#include "launcher/transport/ancillary.h"
#include "proto/wire.h"

namespace regroup::transport {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;
constexpr std::size_t kLength = sizeof(std::uint32_t);  // before the payload of a frame

}  // namespace

base::Result<std::pair<base::Fd, base::Fd>> packet_sockets(const char* peer) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.data()) != 0)
    return base::system_error("socketpair", peer, errno);
  return std::pair(base::Fd(fds[0]), base::Fd(fds[1]));
}

base::Status send_packet(int socket, const proto::Body& body, int descriptor, bool wait) {
  std::vector<std::byte> frame = proto::encode({0, body});
  if (frame.size() - kLength > kMostBytes)
    return base::invalid_argument("control message: too large for a packet");
  iovec bytes{frame.data() + kLength, frame.size() - kLength};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  Ancillary ancillary;
  if (descriptor >= 0) ancillary.attach(packet, descriptor);
  for (;;) {
    if (::sendmsg(socket, &packet, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EAGAIN)
      return base::resource_exhausted("the peer does not read: its socket is full");
    if (errno == EPIPE || errno == ECONNRESET)
      return base::peer_lost("the peer closed the connection");
    return base::system_error("sendmsg", "packet socket", errno);
  }
}

base::Result<std::optional<Packet>> receive_packet(int socket, bool wait) {
  std::array<std::byte, kMostBytes> room;
  iovec bytes{room.data(), room.size()};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  Ancillary ancillary;
  ancillary.expect(packet);
  ssize_t count = -1;
  do {
    count = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return std::optional<Packet>();
  if (count == 0 || (count < 0 && errno == ECONNRESET))
    return base::peer_lost("the peer closed the connection");
  if (count < 0) return base::system_error("recvmsg", "packet socket", errno);
  base::Fd descriptor = Ancillary::taken(packet);
  REGROUP_ASSIGN_OR_RETURN(auto message,
                           proto::decode(std::span(room).first(static_cast<std::size_t>(count))));
  return std::optional(Packet{std::move(message), std::move(descriptor)});
}

}  // namespace regroup::transport
