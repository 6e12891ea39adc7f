// A handler of Asio may come for nothing: that of a timer that has expired is not cancelled any more, and
// that of a descriptor comes, at times, for an event of another that had its number before.
#pragma once

#include <poll.h>

#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace regroup::launcher {

// False where it was set anew, or called off, since the handler was queued.
[[nodiscard]] inline bool is_due(const boost::asio::steady_timer& timer) {
  return timer.expiry() <= std::chrono::steady_clock::now();
}

// Its handlers get an error, or find that it is not due.
inline void call_off(boost::asio::steady_timer& timer) {
  timer.expires_at(boost::asio::steady_timer::time_point::max());
}

// Whether a read of `fd` would not block; of a pidfd: whether its process has ended.
[[nodiscard]] inline bool is_readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

}  // namespace regroup::launcher
