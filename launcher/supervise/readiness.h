// Waits until a borrowed descriptor can be read or written, without changing its flags: descriptors 0, 1 and
// 2 are shared with the shell and with other programs, which O_NONBLOCK would break.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>

namespace regroup::launcher {

// Holds an epoll of its own, which is what the loop waits on.
class Readiness {
 public:
  explicit Readiness(boost::asio::io_context& loop) : poll_(loop) {}
  // Calls `ready` once, on the loop, when `fd` has one of `events` (EPOLLIN, EPOLLOUT) or has failed; at once
  // if it is a file that cannot be waited for. One wait at a time; cancelled by destruction.
  void wait(int fd, std::uint32_t events, std::function<void()> ready);

 private:
  boost::asio::posix::stream_descriptor poll_;
};

}  // namespace regroup::launcher
