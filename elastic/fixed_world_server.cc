// A poll() loop around the AgentCore and Coordinator of elastic jobs, which pass messages to each
// other by function calls here. The first rank that ends before finish(), or is refused, fails the
// World for all.
#include "elastic/fixed_world_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/printable.h"
#include "base/unix_address.h"

namespace regroup::elastic {
namespace {

using base::Result;

constexpr int kBacklog = 128;
constexpr int kTickMs = 200;
constexpr int kEndMs = 100;  // how long a process may take from closing its sockets to its end
constexpr base::Duration kRankCheckPeriod = std::chrono::seconds(1);
constexpr proto::Incarnation kIncarnation = 1;

membership::AgentOptions agent_options(const FixedWorldServerOptions& options) {
  return {.slots = options.size, .shards = options.shards, .seed = options.seed};
}

membership::Policy policy(const FixedWorldServerOptions& options) {
  return {.min = options.size,
          .max = options.size,
          .target = options.size,
          .slots = options.size,
          .replace = false,
          .fixed = true,
          .shards = options.shards,
          .ready_timeout = options.ready_timeout};
}

// Messages of a few dozen bytes, which always fit into a socket's buffer.
bool send_all(int socket, std::span<const std::byte> bytes, int fd) {
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()),
               bytes.size()};  // NOLINT: sendmsg does not write
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (fd >= 0) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
    fd = -1;
  }
  return true;
}

void say(const std::string& text) {
  const std::string line = fmt::format("regroup: {}\n", base::escaped_lines(text));
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

Result<std::unique_ptr<FixedWorldServer>> FixedWorldServer::start(
    const FixedWorldServerOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::abstract_address(options.name));
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return base::system_error("socket", "AF_UNIX", errno);
  if (::bind(listener.get(), address.get(), address.size) != 0) {
    if (errno == EADDRINUSE) return std::unique_ptr<FixedWorldServer>();
    return base::system_error("bind", options.name, errno);
  }
  if (::listen(listener.get(), kBacklog) != 0)
    return base::system_error("listen", options.name, errno);
  base::Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return base::system_error("eventfd", options.name, errno);
  return std::unique_ptr<FixedWorldServer>(
      new FixedWorldServer(options, std::move(listener), std::move(stop)));
}

FixedWorldServer::FixedWorldServer(const FixedWorldServerOptions& options, base::Fd listener,
                                   base::Fd stop)
    : options_(options),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      agent_(agent_options(options_)),
      coordinator_(policy(options_), {.id = options_.name, .seed = options_.seed}, kIncarnation),
      watch_(options_.size, base::SystemClock().now()) {
  // Signals are handled by the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FixedWorldServer::~FixedWorldServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void FixedWorldServer::serve() {
  perform(coordinator_.tick(base::SystemClock().now()));
  for (;;) {
    std::vector<pollfd> polled{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::vector<std::uint64_t> ids{0, 0};
    for (const auto& [id, link] : links_) {
      polled.push_back({link.socket.get(), POLLIN, 0});
      ids.push_back(id);
      if (!link.process.valid()) continue;
      polled.push_back({link.process.get(), POLLIN, 0});
      ids.push_back(id);
    }
    if (::poll(polled.data(), polled.size(), kTickMs) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) accept_links();
    for (std::size_t i = 2; i < polled.size(); ++i) {
      const auto found = links_.find(ids[i]);
      if (polled[i].revents == 0 || found == links_.end()) continue;
      polled[i].fd == found->second.socket.get() ? receive(ids[i]) : on_gone(ids[i]);
    }
    perform(coordinator_.tick(base::SystemClock().now()));
    check_ranks();
  }
}

// World 1 needs all ranks. Fails the World if one has ended without joining.
void FixedWorldServer::check_ranks() {
  const base::TimePoint now = base::SystemClock().now();
  if (!options_.scan_ranks || failed_ || coordinator_.world().generation > 0 || now < next_check_)
    return;
  std::set<proto::MemberId> joined;
  for (const auto& [id, link] : links_) {
    if (link.member) joined.insert(*link.member);
  }
  if (joined.empty()) return;
  if (const auto why = watch_.check(now, options_.scan_ranks(), joined)) fail(*why);
  next_check_ = now + kRankCheckPeriod;
}

void FixedWorldServer::accept_links() {
  for (;;) {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != ::geteuid())
      continue;
    Link& link = links_[++last_link_];
    link.socket = std::move(socket);
    link.pid = peer.pid;
    if (peer.pid <= 0) continue;
    link.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    link.ended = !link.process.valid() && errno == ESRCH;
  }
}

void FixedWorldServer::receive(std::uint64_t id) {
  std::array<std::byte, 16 << 10> buffer;
  const ssize_t got =
      ::recv(links_.at(id).socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return on_gone(id);
  links_.at(id).reader.append(std::span(buffer).first(static_cast<std::size_t>(got)));
  for (auto found = links_.find(id); found != links_.end(); found = links_.find(id)) {
    auto message = found->second.reader.next();
    if (!message.ok()) return on_gone(id);
    if (!message->has_value()) return;
    on_message(id, **message);
  }
}

void FixedWorldServer::on_message(std::uint64_t id, const proto::Message& message) {
  Link& link = links_.at(id);
  if (const auto* join = std::get_if<proto::Join>(&message.body); join != nullptr && !link.member) {
    const bool again = join->member >= options_.size || link_of(join->member) != nullptr;
    link.refused = failed_ || again;
    if (failed_) return send(link, proto::Refused{*failed_});
    if (again)
      return send(link, proto::Refused{fmt::format("rank {} has already joined", join->member)});
    link.member = join->member;
  }
  if (link.member && !failed_) perform(agent_.handle({link.member}, message));
}

FixedWorldServer::Link* FixedWorldServer::link_of(proto::MemberId member) {
  const auto found =
      std::ranges::find_if(links_, [&](const auto& e) { return e.second.member == member; });
  return found == links_.end() ? nullptr : &found->second;
}

bool FixedWorldServer::is_done(proto::MemberId member) const {
  const auto slot = slots_.find(member);
  return slot != slots_.end() &&
         agent_.arena().member_slot(slot->second).finished.load(std::memory_order_acquire) != 0;
}

bool FixedWorldServer::has_ended(const Link& link) {
  pollfd process{link.process.get(), POLLIN, 0};
  return link.ended || (link.process.valid() && ::poll(&process, 1, kEndMs) > 0);
}

// A process closes its sockets shortly before its pidfd becomes readable. A process that ended
// before its Join was a rank that will never join; one that still runs may be any program that only
// connected.
void FixedWorldServer::on_gone(std::uint64_t id) {
  const Link link = std::move(links_.extract(id).mapped());
  if (failed_ || link.refused) return;
  if (!link.member) {
    if (coordinator_.world().generation > 0 || !has_ended(link)) return;
    return fail(fmt::format("process {} ended in join(): the World of {} cannot form", link.pid,
                            options_.size));
  }
  const proto::MemberId rank = *link.member;
  if (is_done(rank)) return perform(agent_.on_reaped(rank, link.pid, 0, 0));
  fail(
      fmt::format("rank {} (process {}) ended, or dropped its session, before finish(): the World "
                  "of {} is over",
                  rank, link.pid, options_.size));
}

// Wakes the waiting ranks and tells them the reason.
void FixedWorldServer::fail(const std::string& why) {
  if (failed_) return;
  failed_ = why;
  for (auto& [id, link] : links_) {
    if (!link.member || is_done(*link.member)) continue;
    send(link, proto::Refused{why});
    if (const auto slot = slots_.find(*link.member); slot != slots_.end())
      agent_.release(slot->second);
  }
  // Ranks in a collective see a revoke.
  if (const proto::Generation open = coordinator_.world().generation; open > 0)
    take(agent_.handle({}, {kIncarnation, proto::Revoke{open}}));
}

void FixedWorldServer::send(Link& link, const proto::Body& body, int fd) {
  const std::vector<std::byte> frame = proto::encode({kIncarnation, body});
  (void)send_all(link.socket.get(), frame, fd);
}

void FixedWorldServer::perform(const membership::AgentEffects& effects) {
  take(effects);
  settle();
}

void FixedWorldServer::perform(const membership::Effects& effects) {
  take(effects);
  settle();
}

void FixedWorldServer::settle() {
  while (!to_coordinator_.empty() || !to_agent_.empty()) {
    auto& queue = to_coordinator_.empty() ? to_agent_ : to_coordinator_;
    const proto::Body body = std::move(queue.front());
    queue.pop_front();
    if (&queue == &to_agent_) {
      take(agent_.handle({}, {kIncarnation, body}));
    } else {
      take(coordinator_.handle(base::SystemClock().now(), {}, {kIncarnation, body}));
    }
  }
}

// Skips effects that start or kill processes, which is the launcher's task.
void FixedWorldServer::take(const membership::AgentEffects& effects) {
  for (const membership::AgentEffect& effect : effects) {
    if (const auto* out = std::get_if<membership::ToCoordinator>(&effect)) {
      to_coordinator_.push_back(out->body);
    } else if (const auto* to_member = std::get_if<membership::ToMember>(&effect)) {
      take_one(*to_member);
    } else if (const auto* release = std::get_if<membership::ReleaseMember>(&effect)) {
      agent_.release(release->slot);
    } else if (const auto* ring = std::get_if<membership::Ring>(&effect)) {
      agent_.ring(ring->slot);
    } else if (const auto* warn = std::get_if<membership::Warn>(&effect)) {
      say(warn->sentence);
    }
  }
}

void FixedWorldServer::take_one(const membership::ToMember& effect) {
  Link* link = link_of(effect.member);
  if (const auto* welcome = std::get_if<proto::Welcome>(&effect.body))
    slots_[effect.member] = welcome->slot;
  if (link != nullptr) send(*link, effect.body, effect.pass_memfd ? agent_.arena().memfd() : -1);
  if (const auto* refused = std::get_if<proto::Refused>(&effect.body))
    fail(fmt::format("the World of {} cannot form: {}", options_.size, refused->reason));
}

// No journal: the server ends with its rank.
void FixedWorldServer::take(const membership::Effects& effects) {
  for (const membership::Effect& effect : effects) {
    if (const auto* out = std::get_if<membership::ToAgent>(&effect)) {
      take_one(*out);
    } else if (const auto* said = std::get_if<membership::Say>(&effect)) {
      if (said->sentence != coordinator_.world().why && !failed_) say(said->sentence);
    }
  }
}

void FixedWorldServer::take_one(const membership::ToAgent& effect) {
  const auto* done = std::get_if<proto::JobDone>(&effect.body);
  if (done == nullptr) return to_agent_.push_back(effect.body);
  if (done->exit_code != 0) fail(done->reason);
}

}  // namespace regroup::elastic
