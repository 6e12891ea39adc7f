// Borrowed input to pipe, one block at a time.
#include "launcher/supervise/stdin_feed.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

namespace regroup::launcher {

StdinFeed::StdinFeed(boost::asio::io_context& loop, int input, core::Fd pipe)
    : readiness_(loop), input_(input), pipe_(loop, pipe.release()) {}

void StdinFeed::stop() {
  boost::system::error_code ignored;
  pipe_.close(ignored);
}

void StdinFeed::wait_input() {
  readiness_.wait(input_, EPOLLIN, [self = shared_from_this()] { self->read(); });
}

void StdinFeed::read() {
  if (!pipe_.is_open()) return;
  const ssize_t count = ::read(input_, bytes_.data(), bytes_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return wait_input();
  if (count <= 0) return stop();  // the end, or a background job that may not read its terminal (EIO)
  rest_ = {bytes_.data(), static_cast<std::size_t>(count)};
  write();
}

void StdinFeed::write() {
  while (!rest_.empty() && pipe_.is_open()) {
    const ssize_t count = ::write(pipe_.native_handle(), rest_.data(), rest_.size());
    if (count >= 0) {
      rest_.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pipe_.async_wait(pipe_.wait_write, [self = shared_from_this()](const boost::system::error_code& error) {
        if (!error) self->write();
      });
      return;
    } else if (errno != EINTR) {
      return stop();  // EPIPE: nobody reads
    }
  }
  if (pipe_.is_open()) wait_input();
}

}  // namespace regroup::launcher
