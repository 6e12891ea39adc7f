// Runs a command for its output: a user's script or an allocator's tool.
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
#include "launcher/spec/request.h"

namespace regroup::process {

// Used by the loop's thread.
class Hook : public std::enable_shared_from_this<Hook> {
 public:
  // The lines of its standard output, 64 MiB at most. kUnavailable: how it ended, with its last
  // line on standard error; kDeadlineExceeded: it exceeded `limit` and was killed with its process
  // group.
  using Done = std::function<void(base::Result<std::string>)>;
  // Runs `argv` in `environment` with empty standard input. `done` is called once, from the loop.
  static std::shared_ptr<Hook> start(boost::asio::io_context& loop,
                                     const std::vector<std::string>& argv,
                                     const spec::Environment& environment, base::Duration limit,
                                     Done done);
  // Kills the command; `done` is not called any more.
  void abandon();

 private:
  Hook(boost::asio::io_context& loop, Done done) : timer_(loop), done_(std::move(done)) {}
  void run(boost::asio::io_context& loop, const std::vector<std::string>& argv,
           const spec::Environment& environment, base::Duration limit);
  void on_line(std::string_view line, bool error);
  void on_end(int wait_status);
  void end(base::Result<std::string> result);

  boost::asio::steady_timer timer_;
  Done done_;
  std::shared_ptr<PipedProcess> process_;
  std::string printed_;
  std::string complaint_;
};

}  // namespace regroup::process
