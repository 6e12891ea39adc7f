// Writes to a descriptor without blocking and without O_NONBLOCK on it: files block only shortly,
// sockets take MSG_DONTWAIT, pipes and terminals are opened a second time. Where that is refused, a
// pipe that polls writable takes PIPE_BUF bytes without blocking.
#include "launcher/process/sink.h"

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

namespace regroup::process {

Sink::Sink(boost::asio::io_context& loop, int fd, std::string name)
    : readiness_(loop), fd_(fd), name_(std::move(name)) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
  } else if (S_ISREG(info.st_mode)) {
    kind_ = Kind::kFile;
    moves_ = (::fcntl(fd, F_GETFL) & O_APPEND) == 0;  // splice() refuses files with O_APPEND
  } else {
    moves_ = S_ISFIFO(info.st_mode);
    terminal_ = ::isatty(fd) == 1;
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own_.valid()) fd_ = own_.get(), kind_ = Kind::kNonBlocking;
  }
}

Sink::Sink(boost::asio::io_context& loop, base::Fd file, std::string name)
    : Sink(loop, file.get(), std::move(name)) {
  if (!own_.valid()) own_ = std::move(file);
}

void Sink::write(std::string_view lines) {
  if (lines.empty() || !error_.ok()) return;
  if (moving_) {
    held_ += lines;
  } else if (congested()) {
    append(lines);
  } else {
    lines.remove_prefix(write_some(lines));
    if (lines.empty() || !error_.ok()) return;
    append(lines);
    push();
  }
}

void Sink::append(std::string_view lines) {
  if (sent_ == pending_.size()) {
    pending_.clear();
    sent_ = 0;
  }
  pending_ += lines;
}

void Sink::push() {
  if (congested()) sent_ += write_some(std::string_view(pending_).substr(sent_));
  if (congested()) {
    readiness_.wait(fd_, EPOLLOUT, [this] { push(); });
  } else {
    release_waiting();
  }
}

// Writes as much as possible without blocking.
std::size_t Sink::write_some(std::string_view bytes) {
  if (line_ == nullptr || bytes.empty()) return write_bytes(bytes);
  TerminalLine::Turn turn(*line_);
  if (turn.drawn()) {
    if (write_bytes(TerminalLine::kErase) < TerminalLine::kErase.size()) return 0;
    turn.set_drawn(false);
  }
  const std::size_t done = write_bytes(bytes);
  if (done > 0) turn.wrote(bytes[done - 1]);
  return done;
}

void Sink::draw(std::string_view text) {
  if (line_ == nullptr || congested() || !error_.ok()) return;
  TerminalLine::Turn turn(*line_);
  if (turn.line_is_open() || (text.empty() && !turn.drawn())) return;
  const std::string all = std::string(TerminalLine::kErase) + std::string(text);
  // Set before the line is drawn: if this process is killed in between, the next one erases it.
  const bool before = turn.drawn();
  turn.set_drawn(true);
  const bool written = write_bytes(all) > 0;
  turn.set_drawn(written ? !text.empty() : before);
}

std::size_t Sink::write_bytes(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size() && error_.ok()) {
    const std::string_view rest = bytes.substr(done);
    ssize_t count = 0;
    if (kind_ == Kind::kSocket) {
      count = ::send(fd_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (kind_ == Kind::kPolled) {
      pollfd poll{fd_, POLLOUT, 0};
      if (::poll(&poll, 1, 0) == 0) return done;
      count = ::write(fd_, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
    } else {
      count = ::write(fd_, rest.data(), rest.size());
    }
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (std::exchange(grown_, true) || ::fcntl(fd_, F_SETPIPE_SZ, kLargePipe) < 0) return done;
    } else if (errno != EINTR) {
      fail(errno, "write");
    }
  }
  return done;
}

std::size_t Sink::move(int pipe, std::size_t bytes) {
  if (!std::exchange(grown_, true))
    ::fcntl(fd_, F_SETPIPE_SZ, kLargePipe);  // no effect unless it is a pipe
  moving_ = true;
  for (;;) {
    const ssize_t count =
        ::splice(pipe, nullptr, fd_, nullptr, bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EAGAIN) return 0;
    if (errno == EINVAL) return moves_ = false, 0;
    if (errno != EINTR) return fail(errno, "splice"), 0;
  }
}

void Sink::when_writable(Resume resume) { readiness_.wait(fd_, EPOLLOUT, std::move(resume)); }

void Sink::end_move(std::string_view lines) {
  moving_ = false;
  write(lines);
  write(std::exchange(held_, {}));
  if (!congested()) release_waiting();
}

void Sink::fail(int error, const char* call) {
  error_ = base::system_error(call, name_, error);
  pending_.clear();
  held_.clear();
  sent_ = 0;
  if (broken_) broken_(error_);
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

}  // namespace regroup::process
