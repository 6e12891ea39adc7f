// Samples members of a node while they run, into a CSV log and a file that `regroup status` reads, or for the
// controller of the job, where those of all hosts come together.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
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
  UsageMeter::GpuReader read_gpu;                     // may be none
  std::string host;                                   // the name of this one
  std::function<void(const std::string& json)> tell;  // gets each sample, as usage_json(); may be none

  [[nodiscard]] bool wanted() const { return !log.empty() || !status_file.empty() || tell; }
};

// Used by the loop's thread. A file that cannot be written any more is said once, and the job goes on.
class UsageReporter {
 public:
  UsageReporter(boost::asio::io_context& loop, UsageOptions options,
                std::function<std::vector<UsageTarget>()> targets,
                std::function<void(const std::string&)> say);
  // Opens the log; failure names it.
  [[nodiscard]] core::Status start();
  // A sample of another host's members, as usage_json() wrote it there; anything else is ignored, and what it
  // says of others than those that live there.
  using Lives = std::function<bool(core::MemberId)>;
  void add(const std::string& host, const std::string& json, const Lives& lives);

 private:
  struct Other {
    std::vector<UsageSample> samples;
    core::TimePoint came;
    bool logged = false;
  };
  void wait(core::Duration time);
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
  std::map<std::string, Other> others_;  // by host, its last sample
  bool complained_ = false;
  boost::asio::steady_timer timer_;
};

}  // namespace regroup::launcher
