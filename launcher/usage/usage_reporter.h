// Samples members of a node while they run, into a CSV log and a file that `regroup status` reads.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"
#include "launcher/usage/usage_meter.h"

namespace regroup::launcher {

struct UsageOptions {
  std::string log;          // CSV is appended; "": none
  std::string status_file;  // replaced as a whole by each sample; "": none
  core::Duration every = std::chrono::seconds(2);
  UsageMeter::GpuReader read_gpu;  // may be none

  [[nodiscard]] bool wanted() const { return !log.empty() || !status_file.empty(); }
};

// Used by the loop's thread. A file that cannot be written any more is said once, and the job goes on.
class UsageReporter {
 public:
  UsageReporter(boost::asio::io_context& loop, UsageOptions options,
                std::function<std::vector<UsageTarget>()> targets,
                std::function<void(const std::string&)> say);
  // Opens the log; failure names it.
  [[nodiscard]] core::Status start();

 private:
  void wait();
  void report();
  void write_log(const std::vector<UsageSample>& samples);
  void write_status(const std::vector<UsageSample>& samples);
  void complain(const core::Status& status);

  UsageOptions options_;
  std::function<std::vector<UsageTarget>()> targets_;
  std::function<void(const std::string&)> say_;
  UsageMeter meter_;
  core::SystemClock clock_;
  core::Fd log_;
  bool complained_ = false;
  boost::asio::steady_timer timer_;
};

}  // namespace regroup::launcher
