// Runs one regroup-persist process that reads or copies checkpoints, with a time limit, without
// blocking the event loop.
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

// Used by the loop's thread, which also calls the handlers. Its destructor kills the process and
// calls no handler.
class PersistTask {
 public:
  struct Wait {
    std::string about;       // the directory that the process reads, for the error message
    base::Duration first{};  // limit until its first output
    base::Duration quiet{};  // limit between two outputs after that
  };
  struct Events {
    std::function<void()> alive;  // the process has reported that it is still reading
    // Called once, last, and never within the constructor: the standard output `text` and standard
    // error `said` of the process. kDeadlineExceeded: it was silent for too long.
    std::function<void(const base::Result<std::string>& text, const std::string& said)> done;
  };
  // Starts the process with the arguments `words`.
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
  // Handlers may still be queued after the end.
  std::shared_ptr<bool> waiting_ = std::make_shared<bool>(true);
};

}  // namespace regroup::writer
