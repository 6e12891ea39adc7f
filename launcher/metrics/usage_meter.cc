// Each sample drops the members that have ended since the previous one.
#include "launcher/metrics/usage_meter.h"

#include <algorithm>
#include <utility>

namespace regroup::metrics {
namespace {

Usage usage_of(const UsageTarget& target, const std::map<pid_t, Usage>& groups) {
  const auto processes = groups.find(target.pid);
  Usage out = processes == groups.end() ? Usage() : processes->second;
  const GroupUsage own = usage_of_control_groups(target.cgroups);
  out.cpu_seconds = own.cpu_seconds.value_or(out.cpu_seconds);
  out.memory_bytes = own.memory_bytes.value_or(out.memory_bytes);
  return out;
}

}  // namespace

std::vector<UsageSample> UsageMeter::sample(const std::vector<UsageTarget>& targets,
                                            base::TimePoint now) {
  const std::map<pid_t, Usage> groups = usage_of_process_groups(root_);
  const std::map<proto::MemberId, Before> before = std::exchange(before_, {});
  std::vector<UsageSample> out;
  for (const UsageTarget& target : targets) {
    if (!groups.contains(target.pid)) continue;
    UsageSample& one = out.emplace_back(UsageSample{target, usage_of(target, groups), 0, {}, {}});
    before_[target.member] = {now, one.usage.cpu_seconds};
    if (const auto last = before.find(target.member);
        last != before.end() && now > last->second.at) {
      const double seconds = std::chrono::duration<double>(now - last->second.at).count();
      one.cpus = std::max(0.0, one.usage.cpu_seconds - last->second.cpu_seconds) / seconds;
    }
    for (const std::string& uuid : target.gpus) {
      if (!read_gpu_) break;
      if (auto gpu = read_gpu_(uuid); gpu.ok()) one.gpus.push_back(std::move(*gpu));
    }
  }
  return out;
}

}  // namespace regroup::metrics
