// Waits until a borrowed descriptor is readable or writable without setting O_NONBLOCK: descriptors
// 0, 1 and 2 are shared with the shell and other programs, which O_NONBLOCK would break.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>

namespace regroup::process {

// Owns an epoll instance, which the loop waits on.
class Readiness {
 public:
  explicit Readiness(boost::asio::io_context& loop) : poll_(loop) {}
  // Calls `ready` once, on the loop, when `fd` has one of `events` (EPOLLIN, EPOLLOUT) or has
  // failed; at once if it is a file that cannot be waited for. One wait at a time; cancelled by
  // destruction.
  void wait(int fd, std::uint32_t events, std::function<void()> ready);

 private:
  boost::asio::posix::stream_descriptor poll_;
};

}  // namespace regroup::process
