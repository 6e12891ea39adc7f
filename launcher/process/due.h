// Guards against spurious Asio handlers: the handler of a timer that has expired is not cancelled
// any more, and the handler of a descriptor may be called for an event of an earlier descriptor
// with the same number.
#pragma once

#include <poll.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace regroup::process {

// False if the timer was set again or cancelled since the handler was queued.
[[nodiscard]] inline bool is_due(const boost::asio::steady_timer& timer) {
  return timer.expiry() <= std::chrono::steady_clock::now();
}

// Cancels the timer: handlers get an error, or find that it is not due.
inline void call_off(boost::asio::steady_timer& timer) {
  timer.expires_at(boost::asio::steady_timer::time_point::max());
}

// Whether a read of `fd` would not block; for a pidfd: whether the process has ended.
[[nodiscard]] inline bool is_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

}  // namespace regroup::process
