// Timers by kind and host. The handler of a timer that was replaced or cancelled may be queued
// already; it finds another number, or none, and does nothing.
#include "launcher/job/host_timers.h"

#include <chrono>

namespace regroup::job {

void HostTimers::set(Kind kind, std::size_t host, base::Duration delay,
                     std::function<void()> then) {
  const std::pair key(kind, host);
  timers_.erase(key);
  Timer& timer = timers_.try_emplace(key, loop_).first->second;
  timer.number = ++last_number_;
  timer.wait.expires_after(std::chrono::duration_cast<boost::asio::steady_timer::duration>(delay));
  timer.wait.async_wait([this, key, number = timer.number,
                         then = std::move(then)](const boost::system::error_code& error) {
    if (error) return;
    const auto found = timers_.find(key);
    if (found == timers_.end() || found->second.number != number) return;
    timers_.erase(found);
    then();
  });
}

}  // namespace regroup::job
