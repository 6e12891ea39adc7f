// Timers of the hosts of an elastic job.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"

namespace regroup::job {

// At most one timer of each kind runs for a host. Used by the loop's thread; destroyed when the
// loop does not run any more.
class HostTimers {
 public:
  enum class Kind : std::uint8_t {
    kDrain,    // whether the host still has members
    kReclaim,  // whether its slots are free
    kRestart,  // the next start of its agent
  };
  explicit HostTimers(boost::asio::io_context& loop) : loop_(loop) {}

  // Calls `then` once from the loop, after `delay`. Replaces a timer of this kind that runs for the
  // host: its function is not called any more, even if it is already due. `then` may set timers.
  void set(Kind kind, std::size_t host, base::Duration delay, std::function<void()> then);
  // Its function is not called any more.
  void cancel(Kind kind, std::size_t host) { timers_.erase({kind, host}); }

 private:
  struct Timer {
    explicit Timer(boost::asio::io_context& loop) : wait(loop) {}
    boost::asio::steady_timer wait;
    std::uint64_t number = 0;
  };
  boost::asio::io_context& loop_;
  std::map<std::pair<Kind, std::size_t>, Timer> timers_;
  std::uint64_t last_number_ = 0;  // an expired handler cannot be cancelled: it compares this
};

}  // namespace regroup::job
