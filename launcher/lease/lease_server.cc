// Replies are sent without blocking, so a client that does not read cannot delay the job.
#include "launcher/lease/lease_server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace regroup::lease {
namespace {

constexpr std::size_t kMostGrantClients = 1024;
constexpr std::size_t kLongestLine = 32 << 20;  // enough for ten thousand hosts

}  // namespace

LeaseServer::LeaseServer(boost::asio::io_context& loop, Events events)
    : loop_(loop),
      events_(std::move(events)),
      listener_(loop, [this](base::Fd socket, pid_t) { on_client(std::move(socket)); }) {}

// Spawners may outlive this server, so that they must not send through it any more.
LeaseServer::~LeaseServer() {
  for (const auto& [id, joiner] : joiners_) joiner->send = {};
}

base::Status LeaseServer::start(const std::string& path) { return listener_.start(path); }

void LeaseServer::on_client(base::Fd socket) {
  if (clients_.size() >= kMostGrantClients || ::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0)
    return;
  const GrantId id = ++last_;
  clients_.try_emplace(id, loop_).first->second.socket.assign(socket.release());
  wait(id);
}

void LeaseServer::wait(GrantId id) {
  auto& socket = clients_.at(id).socket;
  socket.async_wait(socket.wait_read, [this, id](const boost::system::error_code& error) {
    if (error || !clients_.contains(id)) return;
    if (receive(id)) return wait(id);
    const auto client = clients_.extract(id);
    if (!client.empty() && client.mapped().accepted) {
      if (const auto joiner = joiners_.find(id); joiner != joiners_.end())
        joiner->second->send = {};
      events_.gone(id);
    }
  });
}

// False: the client has disconnected or was refused.
bool LeaseServer::receive(GrantId id) {
  std::array<char, 64 << 10> bytes;
  const ssize_t count =
      ::recv(clients_.at(id).socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  std::string& read = clients_.at(id).read;
  read.append(bytes.data(), static_cast<std::size_t>(count));
  for (std::size_t end = 0; (end = read.find('\n')) != std::string::npos;) {
    const std::string line = read.substr(0, end);
    read.erase(0, end + 1);
    on_line(id, line);
    if (!clients_.contains(id)) return false;
  }
  return read.size() <= kLongestLine;
}

void LeaseServer::on_line(GrantId id, const std::string& line) {
  Client& client = clients_.at(id);
  if (client.accepted) {
    const auto joiner = joiners_.find(id);
    if (const auto news = parse_agent_news(line); news.ok()) {
      if (joiner != joiners_.end() && joiner->second->heard) joiner->second->heard(*news);
    } else if (const auto revoke = parse_revoke(line); revoke.ok()) {
      events_.revoked(id, *revoke);
    }
    return;
  }
  if (const auto resized = parse_resized(line); resized.ok()) return events_.resized(id, *resized);
  if (const auto reconnect = parse_reconnect(line); reconnect.ok()) {
    client.accepted = true;
    const base::Status status = events_.reconnected(id, *reconnect);
    return status.ok() ? void() : end(id, status.message(), false);
  }
  const auto revoke = parse_revoke(line);
  const auto offer = parse_offer(line);
  if (!revoke.ok() && !offer.ok()) return end(id, offer.status().message(), false);
  client.accepted = true;
  const base::Status status =
      revoke.ok() ? events_.wanted(id, *revoke) : events_.offered(id, *offer);
  if (!status.ok()) end(id, status.message(), false);
}

// False: the socket did not take the whole line, so that later lines could not be parsed.
bool LeaseServer::send(GrantId id, const std::string& line) {
  const auto client = clients_.find(id);
  if (client == clients_.end()) return false;
  const ssize_t sent = ::send(client->second.socket.native_handle(), line.data(), line.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0 && sent < static_cast<ssize_t>(line.size()))
    ::shutdown(client->second.socket.native_handle(), SHUT_RDWR);  // the client may reconnect
  return sent == static_cast<ssize_t>(line.size());
}

void LeaseServer::tell(GrantId id, const std::string& text) {
  send(id, to_line(LeaseReply{text, false, true}));
}

void LeaseServer::end(GrantId id, const std::string& text, bool ok) {
  send(id, to_line(LeaseReply{text, true, ok}));
  clients_.erase(id);
  drop_joiner(id);
}

void LeaseServer::connect(GrantId id, JoinerLink& joiner) {
  joiner.send = [this, id](const std::string& line, const transport::JobSecret* secret) {
    if (!send(id, line)) return false;
    const int socket = clients_.at(id).socket.native_handle();
    if (secret == nullptr || secret->write(socket).ok()) return true;
    ::shutdown(socket, SHUT_RDWR);  // a part of the secret must not be parsed as a line
    return false;
  };
}

std::shared_ptr<JoinerLink> LeaseServer::joiner(GrantId id) {
  auto& made = joiners_[id];
  if (!made) {
    made = std::make_shared<JoinerLink>();
    connect(id, *made);
  }
  return made;
}

void LeaseServer::move_joiner(GrantId before, GrantId id) {
  auto moved = joiners_.extract(before);
  if (moved.empty()) return;
  connect(id, *moved.mapped());
  moved.key() = id;
  joiners_.insert(std::move(moved));
}

void LeaseServer::drop_joiner(GrantId id) {
  const auto joiner = joiners_.extract(id);
  if (joiner.empty()) return;
  joiner.mapped()->send = {};
  if (joiner.mapped()->gone) joiner.mapped()->gone();
}

}  // namespace regroup::lease
