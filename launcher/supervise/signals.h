// Signals as events of a loop, and as words. All are blocked in the launcher's processes and read from a
// signalfd, so no handler ever runs and a forked process starts with a clean state.
#pragma once

#include <utility>

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

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

 private:
  void wait();

  boost::asio::posix::stream_descriptor stream_;
  Handler handler_;
};

}  // namespace regroup::launcher
