// A timer that has expired is not cancelled any more: its handler is on its way, without an error, and has to
// look itself whether it still counts.
#pragma once

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

}  // namespace regroup::launcher
