// Signals as events of a loop, and as words. All are blocked in the launcher's processes and read from a
// signalfd, so no handler ever runs and a forked process starts with a clean state.
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

#include "core/clock.h"
#include "core/status.h"
#include "launcher/options/request.h"

namespace regroup::launcher {

// Blocks every signal and ignores SIGPIPE; children inherit that until `spawn` resets it. Before any thread
// is started.
void block_signals();

// "SIGKILL", or "signal 70".
[[nodiscard]] std::string signal_name(int signal);

// What mpirun passes on to the ranks where nothing else is said, SIGTSTP as SIGSTOP; and what hydra does.
[[nodiscard]] std::vector<int> signals_forwarded_by(Compat compat);

// Calls `handler` for each of `signals` that arrives, on the loop's thread.
class SignalReader {
 public:
  using Handler = std::function<void(int signal)>;
  SignalReader(boost::asio::io_context& loop, Handler handler)
      : stream_(loop), handler_(std::move(handler)) {}
  [[nodiscard]] core::Status start(const std::vector<int>& signals);
  // Within `handler`: the kernel sent it, for a key of the terminal; not a process.
  [[nodiscard]] bool by_key() const { return by_key_; }

 private:
  void wait();

  boost::asio::posix::stream_descriptor stream_;
  Handler handler_;
  bool by_key_ = false;
};

// Whether a signal that asks for an end is a wish of its own, or the same signal sent twice. A scheduler
// signals a process group and its leader, a wrapper passes on what the terminal sent to both, a session ends
// by SIGHUP and SIGTERM: all within a moment of each other, and none of them means "at once". Another signal,
// and a key that is pressed twice, does.
class EndWishes {
 public:
  static constexpr std::chrono::seconds kOneWish{1};  // from the first of a signal on

  // True: it says once more what an earlier one said. Else the time counts from `now`.
  [[nodiscard]] bool repeats(int signal, bool by_key, core::TimePoint now) {
    Wish& wish = wishes_[signal == SIGHUP ? SIGTERM : signal];
    const bool again = wish.first && now - *wish.first < kOneWish && !(by_key && wish.by_key);
    if (!again) wish.first = now;
    wish.by_key = by_key || (again && wish.by_key);
    return again;
  }

 private:
  struct Wish {
    std::optional<core::TimePoint> first;
    bool by_key = false;
  };
  std::map<int, Wish> wishes_;  // by signal
};

}  // namespace regroup::launcher
