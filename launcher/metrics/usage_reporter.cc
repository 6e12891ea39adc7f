// A log line is one write(), so that several jobs may append to one file.
#include "launcher/metrics/usage_reporter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "launcher/metrics/usage_text.h"

namespace regroup::metrics {
namespace {

// Early, for a `status` right after the start.
constexpr base::Duration kFirst = std::chrono::milliseconds(200);

base::Status write_all(int fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::system_error("write", path, errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace

UsageReporter::UsageReporter(boost::asio::io_context& loop, UsageOptions options,
                             std::function<std::vector<UsageTarget>()> targets,
                             std::function<void(const std::string&)> say)
    : options_(std::move(options)),
      targets_(std::move(targets)),
      say_(std::move(say)),
      meter_(options_.read_gpu),
      timer_(loop) {}

base::Status UsageReporter::start() {
  if (!options_.log.empty()) {
    log_ = base::Fd(
        ::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
    if (!log_.valid()) return base::system_error("open", options_.log, errno);
    struct stat info {};
    if (::fstat(log_.get(), &info) == 0 && info.st_size == 0)
      REGROUP_RETURN_IF_ERROR(write_all(log_.get(), usage_csv_header(), options_.log));
  }
  wait(std::min<base::Duration>(options_.every, kFirst));
  return {};
}

void UsageReporter::wait(base::Duration time) {
  timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(time));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    report();
    wait(options_.every);
  });
}

void UsageReporter::add(const std::string& host, const std::string& json, const Lives& lives) {
  auto samples = usage_from_json(json);
  if (!samples.ok()) return;
  std::erase_if(*samples, [&](const UsageSample& one) { return !lives(one.of.member); });
  for (UsageSample& one : *samples) one.host = host;
  others_[host] = {std::move(*samples), clock_.now(), false};
}

// Drops a host from the status when three of its samples are missing.
void UsageReporter::report() {
  const base::TimePoint now = clock_.now();
  std::vector<UsageSample> samples = meter_.sample(targets_(), now);
  for (UsageSample& one : samples) one.host = options_.host;
  tell_faults(samples);
  if (options_.tell) options_.tell(usage_json(samples));
  if (log_.valid()) write_log(samples);
  for (auto& [host, other] : others_) {
    if (log_.valid() && !std::exchange(other.logged, true)) write_log(other.samples);
    if (now - other.came < 3 * options_.every)
      samples.insert(samples.end(), other.samples.begin(), other.samples.end());
  }
  if (!options_.status_file.empty()) write_status(samples);
}

void UsageReporter::tell_faults(const std::vector<UsageSample>& samples) {
  for (const UsageSample& one : samples) {
    for (const GpuUse& gpu : one.gpus) {
      for (const std::string& fault : gpu.faults) {
        if (told_faults_.insert(gpu.uuid + fault).second)
          say_(fmt::format("GPU {} of member {} on host {} is not healthy: {}", gpu.uuid,
                           one.of.member, one.host, fault));
      }
    }
  }
}

void UsageReporter::write_log(const std::vector<UsageSample>& samples) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  complain(write_all(log_.get(), usage_csv(seconds, samples), options_.log));
}

// Readers see the old file or the new one.
void UsageReporter::write_status(const std::vector<UsageSample>& samples) {
  const std::string next = options_.status_file + ".next";
  const base::Fd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return complain(base::system_error("open", next, errno));
  const base::Status written = write_all(file.get(), usage_json(samples), next);
  if (!written.ok()) return complain(written);
  if (::rename(next.c_str(), options_.status_file.c_str()) != 0)
    complain(base::system_error("rename", next, errno));
}

void UsageReporter::complain(const base::Status& status) {
  if (status.ok() || !log_.valid() || std::exchange(complained_, true)) return;
  say_(status.message() + "; usage is not reported");
}

}  // namespace regroup::metrics
