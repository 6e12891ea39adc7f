// The process's exit counts as its end, not EOF of its pipes: a daemon of ssh may hold them open
// for hours.
#include "launcher/process/piped_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/fd.h"
#include "launcher/process/due.h"

namespace regroup::process {
namespace {

constexpr std::size_t kMostAtEnd = 1 << 20;

struct Ends {
  base::Fd ours, theirs;
};

// Socket pairs instead of pipes: MSG_NOSIGNAL avoids SIGPIPE when the reader is gone.
base::Result<Ends> make_ends() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return base::system_error("socketpair", "streams of a process", errno);
  }
  Ends ends{base::Fd(fds[0]), base::Fd(fds[1])};
  if (::fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
    return base::system_error("fcntl(O_NONBLOCK)", "streams of a process", errno);
  }
  return ends;
}

}  // namespace

PipedProcess::PipedProcess(boost::asio::io_context& loop, pid_t pid, Events events)
    : events_(std::move(events)),
      in_(loop),
      pidfd_(loop),
      out_(loop, false),
      err_(loop, true),
      pid_(pid),
      child_(pid) {}

base::Result<std::shared_ptr<PipedProcess>> PipedProcess::start(boost::asio::io_context& loop,
                                                                SpawnSpec spec, Events events) {
  auto in = make_ends(), out = make_ends(), err = make_ends();
  for (const auto* ends : {&in, &out, &err}) {
    if (!ends->ok()) return ends->status();
  }
  spec.in = in->theirs.get(), spec.out = out->theirs.get(), spec.err = err->theirs.get();
  REGROUP_ASSIGN_OR_RETURN(auto pid, spawn(spec));
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const base::Status why = base::system_error("pidfd_open", spec.path, errno);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return why;
  }
  std::shared_ptr<PipedProcess> self(new PipedProcess(loop, pid, std::move(events)));
  self->in_.assign(in->ours.release());
  self->out_.pipe.assign(out->ours.release());
  self->err_.pipe.assign(err->ours.release());
  self->pidfd_.assign(pidfd);
  self->wait_output(self->out_);
  self->wait_output(self->err_);
  self->wait_end();
  return self;
}

void PipedProcess::abandon() {
  events_ = {};
  close_input();
  kill();
}

void PipedProcess::kill() {
  if (!pidfd_.is_open()) return;
  // Not reaped yet, so the process group is still that of spawn().
  if (!child_.status()) ::kill(-pid_, SIGKILL);
  ::syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), SIGKILL, nullptr, 0);
}

void PipedProcess::wait_output(Stream& stream) {
  stream.pipe.async_wait(stream.pipe.wait_read, [self = shared_from_this(),
                                                 &stream](const boost::system::error_code& error) {
    if (!error && stream.pipe.is_open() && self->read(stream) != 0) self->wait_output(stream);
  });
}

ssize_t PipedProcess::read(Stream& stream) {
  std::array<char, 16 << 10> bytes;
  const ssize_t count =
      ::recv(stream.pipe.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR ? -1 : 0;
  tell(stream, stream.lines.add({bytes.data(), static_cast<std::size_t>(count)}));
  if (count == 0) tell_rest(stream);
  return count;
}

void PipedProcess::tell(const Stream& stream, const std::vector<std::string>& lines) {
  const auto line = events_.line;  // a copy: the call may destroy the handler
  for (const std::string& each : lines) {
    if (line && events_.line) line(each, stream.error);
  }
}

void PipedProcess::tell_rest(Stream& stream) {
  if (const std::string rest = stream.lines.take_rest(); !rest.empty()) tell(stream, {rest});
}

void PipedProcess::feed(std::string_view bytes) {
  to_write_ += bytes;
  if (!writing_) write();
}

void PipedProcess::write() {
  while (in_.is_open() && !to_write_.empty()) {
    const ssize_t count = ::send(in_.native_handle(), to_write_.data(), to_write_.size(),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return to_write_.clear();
    if (count < 0) {
      writing_ = true;
      return in_.async_wait(in_.wait_write,
                            [self = shared_from_this()](const boost::system::error_code& e) {
                              self->writing_ = false;
                              if (!e) self->write();
                            });
    }
    to_write_.erase(0, static_cast<std::size_t>(count));
  }
}

void PipedProcess::close_input() {
  to_write_.clear();
  boost::system::error_code ignored;
  in_.close(ignored);
}

void PipedProcess::wait_end() {
  pidfd_.async_wait(pidfd_.wait_read,
                    [self = shared_from_this()](const boost::system::error_code& error) {
                      if (error) return;
                      is_readable(self->pidfd_.native_handle()) ? self->on_end() : self->wait_end();
                    });
}

void PipedProcess::on_end() {
  siginfo_t info{};
  const bool ours =
      ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.native_handle()), &info,
               WEXITED | WNOHANG) == 0 &&
      info.si_pid != 0;
  const int status = !ours                        ? child_.status().value_or(SIGKILL)
                     : info.si_code == CLD_EXITED ? info.si_status << 8
                                                  : info.si_status;
  boost::system::error_code ignored;
  for (Stream* stream : {&out_, &err_}) {
    // Reads what is in the pipe now, but not what other processes go on writing.
    for (std::size_t got = 0; got < kMostAtEnd && stream->pipe.is_open();) {
      const ssize_t count = read(*stream);
      if (count <= 0) break;
      got += static_cast<std::size_t>(count);
    }
    tell_rest(*stream);
    stream->pipe.close(ignored);
  }
  close_input();
  pidfd_.close(ignored);
  if (const auto ended = std::exchange(events_, {}).ended) ended(status);
}

}  // namespace regroup::process
