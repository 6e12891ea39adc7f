// Non-blocking writes to a descriptor that we must not make non-blocking: files never block long, sockets
// take MSG_DONTWAIT, pipes and terminals are opened a second time. Where that is refused, a pipe that polls
// writable takes PIPE_BUF bytes without blocking.
#include "launcher/supervise/sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace regroup::launcher {

Sink::Sink(boost::asio::io_context& loop, int fd) : readiness_(loop), fd_(fd), kind_(Kind::kPolled) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  if (S_ISREG(info.st_mode)) {
    kind_ = Kind::kFile;
  } else if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
  } else {
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own_.valid()) fd_ = own_.get(), kind_ = Kind::kNonBlocking;
  }
}

void Sink::write(const std::string& lines) {
  if (lines.empty() || !error_.ok()) return;
  const bool was_congested = congested();
  pending_ += lines;
  if (!was_congested) push();
}

void Sink::push() {
  while (congested() && write_some()) {
  }
  if (congested()) {
    readiness_.wait(fd_, EPOLLOUT, [this] { push(); });
  } else {
    release_waiting();
  }
}

// True if it made progress (or broke).
bool Sink::write_some() {
  ssize_t count = 0;
  if (kind_ == Kind::kSocket) {
    count = ::send(fd_, pending_.data(), pending_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (kind_ == Kind::kPolled) {
    pollfd poll{fd_, POLLOUT, 0};
    if (::poll(&poll, 1, 0) == 0) return false;
    count = ::write(fd_, pending_.data(), std::min<std::size_t>(pending_.size(), PIPE_BUF));
  } else {
    count = ::write(fd_, pending_.data(), pending_.size());
  }
  if (count < 0 && errno == EAGAIN) return false;
  if (count < 0 && errno == EINTR) return true;
  if (count < 0) {
    error_ = core::system_error("write", "output of the job", errno);
    pending_.clear();
  } else {
    pending_.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

void Sink::release_waiting() {
  for (auto& resume : std::exchange(waiting_, {})) resume();
}

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

}  // namespace regroup::launcher
