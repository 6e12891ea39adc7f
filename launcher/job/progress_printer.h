// --progress: shows on standard error how far the training is.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>

#include "launcher/process/sink.h"
#include "membership/coordinator/progress_meter.h"

namespace regroup::job {

// On a sink that draws, one line that is redrawn twice a second while the launcher has the
// terminal; otherwise a line every 10 s, unless the sink's reader is slow. Used by the loop's
// thread; a write waits for at most 100 ms for a stopped process that is about to draw.
class ProgressPrinter {
 public:
  // `progress` is called by the loop; nullopt: nothing to show yet. `err` outlives this.
  using Source = std::function<std::optional<membership::TrainingProgress>()>;
  ProgressPrinter(boost::asio::io_context& loop, process::Sink& err, Source progress);

  void start() { wait(); }
  // The job is over: what was reached stays as a last line. Once.
  void end();

 private:
  void wait();
  void show();
  void print_line();

  process::Sink& err_;
  const Source progress_;
  boost::asio::steady_timer timer_;
  std::string printed_;  // the last line, to which end() adds nothing if it is the same
};

}  // namespace regroup::job
