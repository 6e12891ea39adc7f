// Frames over a Unix socket, with at most one descriptor each. A read may end in the middle of a
// frame, or hold several.
#include "elastic/agent_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace regroup::elastic {

namespace {

bool carries_descriptor(const proto::Body& body) {
  const auto* const line = std::get_if<proto::DeviceLine>(&body);
  return std::holds_alternative<proto::Welcome>(body) || (line != nullptr && line->line != 0);
}

}  // namespace

base::Result<AgentLink> AgentLink::connect(const std::string& path) {
  const auto address = base::unix_address(path);
  if (!address.ok())
    return base::Status(address.code(),
                        fmt::format("REGROUP_AGENT: {}", address.status().message()));
  return connect_to(*address, "agent at " + path);
}

base::Result<AgentLink> AgentLink::connect_to_rank(const std::string& name) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::abstract_address(name));
  auto link = connect_to(address, name);
  if (!link.ok()) return link;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(link->socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return base::system_error("getsockopt", name, errno);
  if (peer.uid != ::geteuid())
    return base::invalid_argument(fmt::format(
        "join: the socket {} of this World belongs to process {} of user {}, expected user {}",
        name, peer.pid, peer.uid, ::geteuid()));
  link->peer_name_ = fmt::format("the rank that served this World (process {})", peer.pid);
  if (peer.pid > 0) link->peer_.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  return link;
}

base::Result<AgentLink> AgentLink::connect_to(const base::UnixAddress& address,
                                              const std::string& peer) {
  AgentLink link;
  link.socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!link.connected()) return base::system_error("socket", "AF_UNIX", errno);
  if (::connect(link.socket_.get(), address.get(), address.size) != 0) {
    return base::system_error("connect", peer, errno);
  }
  return link;
}

base::Status AgentLink::peer_lost() const {
  return base::peer_lost(peer_name_ + " has ended: this World of fixed size is over");
}

base::Status AgentLink::send(const proto::Body& body) {
  const std::vector<std::byte> frame = proto::encode({0, body});
  std::span<const std::byte> rest = frame;
  while (!rest.empty()) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return base::system_error("send", "agent", errno);
    if (sent > 0) rest = rest.subspan(static_cast<std::size_t>(sent));
  }
  return {};
}

base::Result<proto::Message> AgentLink::receive(base::TimePoint deadline, base::Fd* fd) {
  for (;;) {
    REGROUP_ASSIGN_OR_RETURN(auto message, reader_.next());
    if (message.has_value()) {
      if (carries_descriptor(message->body) && !descriptors_.empty()) {
        if (fd != nullptr) *fd = std::move(descriptors_.front());
        descriptors_.pop_front();
      }
      return std::move(*message);
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - base::SystemClock().now());
    std::array<pollfd, 2> polled{
        {{socket_.get(), POLLIN, 0}, {peer_.get(), POLLIN, 0}}};  // -1 is ignored
    const int ready =
        ::poll(polled.data(), polled.size(),
               static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000)));
    if (ready < 0 && errno != EINTR) return base::system_error("poll", "agent", errno);
    if (ready == 0) return base::deadline_exceeded("the agent of this host did not answer in time");
    if (ready > 0 && polled[0].revents == 0) return peer_lost();
    if (ready > 0) REGROUP_RETURN_IF_ERROR(read_more());
  }
}

base::Status AgentLink::read_more() {
  std::array<std::byte, 16 << 10> buffer;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  if (got < 0) return base::system_error("recvmsg", "agent", errno);
  if (got == 0 && peer_.valid()) return peer_lost();
  if (got == 0) return base::peer_lost("the agent of this host closed the connection");
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(c), sizeof received);
    descriptors_.emplace_back(received);
  }
  reader_.append(std::span(buffer).first(static_cast<std::size_t>(got)));
  return {};
}

}  // namespace regroup::elastic
