// One regroup-persist that reads or copies checkpoints beside a loop, which waits for it so long
// and no longer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/process/piped_process.h"

namespace regroup::writer {

// How a process ended that said nothing.
[[nodiscard]] std::string silent_end(int wait_status);

// Used by the loop's thread; handlers are called from the loop. Gone, it kills the process and says
// nothing.
class PersistTask {
 public:
  struct Wait {
    std::string about;       // what the process looks into, for the error
    base::Duration first{};  // until it says anything ...
    base::Duration quiet{};  // ... and from then on
  };
  struct Events {
    std::function<void()> alive;  // it has said that it is still reading
    // Once and last, of the loop, not of start(): what it printed, and what it said on its standard
    // error. kDeadlineExceeded: it was silent for too long.
    std::function<void(const base::Result<std::string>& text, const std::string& said)> done;
  };
  // `words`: its arguments.
  PersistTask(boost::asio::io_context& loop, std::vector<std::string> words, Wait wait,
              Events events);
  ~PersistTask();
  PersistTask(const PersistTask&) = delete;
  PersistTask& operator=(const PersistTask&) = delete;

 private:
  void on_line(std::string_view line, bool error);
  void on_ended(int wait_status);
  void expect_within(base::Duration limit);
  void end(const base::Result<std::string>& text);

  const Wait wait_;
  const Events events_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<process::PipedProcess> process_;
  std::string text_, said_;
  // Handlers may be queued behind the end.
  std::shared_ptr<bool> waiting_ = std::make_shared<bool>(true);
};

}  // namespace regroup::writer
