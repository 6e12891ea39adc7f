// Pipe to lines to sink, with back-pressure.
#include "launcher/supervise/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace regroup::launcher {

Output::Output(boost::asio::io_context& loop, core::Fd pipe, std::string prefix, Sink& sink,
               std::function<void()> closed)
    : pipe_(loop, pipe.release()), cutter_(std::move(prefix)), sink_(sink), closed_(std::move(closed)) {}

void Output::wait() {
  pipe_.async_wait(pipe_.wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->read();
  });
}

void Output::finish() {
  last_ = true;
  if (open() && !paused_) read();
}

void Output::read() {
  std::array<char, 64 << 10> bytes;
  while (open()) {
    if (!sink_.error().ok()) return close();
    if (sink_.congested()) {
      if (std::exchange(paused_, true)) return;
      sink_.when_free([self = shared_from_this()] {
        self->paused_ = false;
        self->read();
      });
      return;
    }
    const ssize_t count = ::read(pipe_.native_handle(), bytes.data(), bytes.size());
    if (count > 0) {
      sink_.write(cutter_.feed({bytes.data(), static_cast<std::size_t>(count)}));
    } else if (count < 0 && errno == EAGAIN && !last_) {
      return wait();
    } else if (count == 0 || errno != EINTR) {
      close();
    }
  }
}

void Output::close() {
  if (!open()) return;
  sink_.write(cutter_.finish());
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (closed_) closed_();
}

}  // namespace regroup::launcher
