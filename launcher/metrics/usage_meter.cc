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

// Adds what the process group of a rank uses. If no listed process is in a group of `targets`, the
// driver may list pids of another pid namespace, of which some exist in ours by chance.
GpuUse use_by_rank(GpuReading gpu, pid_t group, const std::vector<UsageTarget>& targets,
                   const std::string& root) {
  int busy = 0;
  std::optional<std::uint64_t> memory = 0;  // empty: of one of the processes it is unknown
  bool has_ranks = false;
  for (const GpuProcess& process : gpu.processes) {
    const auto found = process_group_of(process.pid, root);
    has_ranks = has_ranks || std::ranges::any_of(targets, [&](const UsageTarget& target) {
                  return found == target.pid;
                });
    if (found != group) continue;
    busy += process.busy_percent;
    memory = memory && process.memory_used ? std::optional(*memory + *process.memory_used)
                                           : std::nullopt;
  }
  if (has_ranks) {
    gpu.use.rank_busy_percent = std::min(busy, 100);
    gpu.use.rank_memory_used = memory;
  }
  return std::move(gpu.use);
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
      if (auto gpu = read_gpu_(uuid); gpu.ok())
        one.gpus.push_back(use_by_rank(std::move(*gpu), target.pid, targets, root_));
    }
  }
  return out;
}

}  // namespace regroup::metrics
