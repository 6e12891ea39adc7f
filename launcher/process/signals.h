// Signals as events of a loop, and their names. All are blocked in the launcher's processes and
// read from a signalfd, so no handler ever runs and a forked process starts with a clean state.
#pragma once

#include <utility>

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/spec/request.h"

namespace regroup::process {

// Blocks every signal and ignores SIGPIPE; children inherit that until `spawn` resets it. Before
// any thread is started.
void block_signals();

// "SIGKILL", or "signal 70".
[[nodiscard]] std::string signal_name(int signal);

// The signals that mpirun or hydra forwards to the ranks by default; SIGTSTP is forwarded as
// SIGSTOP.
[[nodiscard]] std::vector<int> signals_forwarded_by(spec::Compat compat);

// Calls `handler` for each of `signals` that arrives, on the loop's thread.
class SignalReader {
 public:
  using Handler = std::function<void(int signal)>;
  SignalReader(boost::asio::io_context& loop, Handler handler)
      : stream_(loop), handler_(std::move(handler)) {}
  [[nodiscard]] base::Status start(const std::vector<int>& signals);
  // Within `handler`: true if the kernel sent the signal for a key of the terminal, not a process.
  [[nodiscard]] bool by_key() const { return by_key_; }

 private:
  void wait();

  boost::asio::posix::stream_descriptor stream_;
  Handler handler_;
  bool by_key_ = false;
};

// Tells whether a signal that requests the end is a request of its own or a duplicate. A scheduler
// signals a process group and its leader, a wrapper forwards what the terminal sent to both, a
// login session ends with SIGHUP and SIGTERM: these arrive within a second of each other and do not
// mean "at once". Another signal, and a key that is pressed twice, do.
class StopRequests {
 public:
  static constexpr std::chrono::seconds kSameRequest{1};  // from the first of a signal on

  // True: the signal duplicates an earlier one. False: it is a request of its own, and its second
  // counts from `now`.
  [[nodiscard]] bool repeats(int signal, bool by_key, base::TimePoint now) {
    Stop& stop = stop_requests_[signal == SIGHUP ? SIGTERM : signal];
    const bool again = stop.first && now - *stop.first < kSameRequest && !(by_key && stop.by_key);
    if (!again) stop.first = now;
    stop.by_key = by_key || (again && stop.by_key);
    return again;
  }

 private:
  struct Stop {
    std::optional<base::TimePoint> first;
    bool by_key = false;
  };
  std::map<int, Stop> stop_requests_;  // by signal
};

}  // namespace regroup::process
