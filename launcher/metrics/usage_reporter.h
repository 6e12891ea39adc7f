// Samples the usage of a node's members into a CSV log and a file for `regroup status`, or for the
// controller of the job, which merges the samples of all hosts.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/metrics/usage_meter.h"

namespace regroup::metrics {

struct UsageOptions {
  std::string log;          // CSV file to which samples are appended; "": none
  std::string status_file;  // file that each sample replaces; "": none
  base::Duration every = std::chrono::seconds(2);
  UsageMeter::GpuReader read_gpu;  // may be empty
  std::string host;                // this host's name
  // Called with each sample, as usage_json(); may be empty.
  std::function<void(const std::string& json)> tell;

  [[nodiscard]] bool wanted() const { return !log.empty() || !status_file.empty() || tell; }
};

// Used by the loop's thread. The first failure to write a file is reported, and the job continues.
class UsageReporter {
 public:
  UsageReporter(boost::asio::io_context& loop, UsageOptions options,
                std::function<std::vector<UsageTarget>()> targets,
                std::function<void(const std::string&)> say);
  // Opens the log; failure names it.
  [[nodiscard]] base::Status start();
  // Adds a sample of another host, in the form of usage_json(). Ignores malformed samples, and
  // members in it that do not live on that host.
  using Lives = std::function<bool(proto::MemberId)>;
  void add(const std::string& host, const std::string& json, const Lives& lives);

 private:
  struct Other {
    std::vector<UsageSample> samples;
    base::TimePoint came;
    bool logged = false;
  };
  void wait(base::Duration time);
  void report();
  // Says each fault of a GPU of this host once.
  void tell_faults(const std::vector<UsageSample>& samples);
  void write_log(const std::vector<UsageSample>& samples);
  void write_status(const std::vector<UsageSample>& samples);
  void complain(const base::Status& status);

  UsageOptions options_;
  std::function<std::vector<UsageTarget>()> targets_;
  std::function<void(const std::string&)> say_;
  UsageMeter meter_;
  base::SystemClock clock_;
  base::Fd log_;
  std::map<std::string, Other> others_;  // by host, its last sample
  std::set<std::string> told_faults_;
  bool complained_ = false;
  boost::asio::steady_timer timer_;
};

}  // namespace regroup::metrics
