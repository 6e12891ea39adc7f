// Uses RLIMIT_DATA, not RLIMIT_AS: it counts the memory that a process may write, not all that it
// maps.
#include "launcher/process/limiter.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace regroup::process {
namespace {

std::vector<int> allowed_cores() {
  std::vector<cpu_set_t> mask(16);
  const std::size_t size = mask.size() * sizeof(cpu_set_t);
  std::vector<int> cores;
  if (::sched_getaffinity(0, size, mask.data()) != 0) return cores;
  for (int core = 0; core < static_cast<int>(mask.size()) * CPU_SETSIZE; ++core) {
    if (CPU_ISSET_S(core, size, mask.data())) cores.push_back(core);
  }
  return cores;
}

}  // namespace

Restraint Limiter::restrain(proto::MemberId member, const spec::Limits& limits) {
  Restraint restraint;
  const bool limited = limits != spec::Limits{};
  if (!limited && !groups_) return restraint;
  if (!refused_) {
    const base::Status status = enter(member, limits, restraint);
    if (status.ok()) return restraint;
    restraint.cgroup_procs.clear();
    refused_ = true;
    restraint.said = fmt::format(
        "limits are not enforced by control groups ({}): cores by affinity, memory by RLIMIT_DATA "
        "of each "
        "process",
        status.message());
  }
  fall_back(limits, restraint);
  return restraint;
}

base::Status Limiter::enter(proto::MemberId member, const spec::Limits& limits,
                            Restraint& restraint) {
  if (!groups_) {
    REGROUP_ASSIGN_OR_RETURN(groups_, JobCgroup::make(job_, {true, true}, root_));
    if (record_) REGROUP_RETURN_IF_ERROR(record_->add_cgroups(groups_->folders()));
  }
  REGROUP_ASSIGN_OR_RETURN(restraint.cgroup_procs, groups_->add(member, limits));
  memory_[member] = limits.memory_bytes;
  return {};
}

void Limiter::fall_back(const spec::Limits& limits, Restraint& restraint) {
  restraint.data_bytes = limits.memory_bytes;
  if (limits.cpus <= 0) return;
  const std::vector<int> cores = allowed_cores();
  const auto wanted = static_cast<std::size_t>(std::max(1.0, std::ceil(limits.cpus)));
  for (std::size_t i = 0; i < std::min(wanted, cores.size()); ++i) {
    restraint.cores.push_back(cores[next_core_++ % cores.size()]);
  }
}

std::uint64_t Limiter::exceeded_memory(proto::MemberId member) {
  const auto found = memory_.find(member);
  if (found == memory_.end()) return 0;
  const std::uint64_t limit = found->second;
  memory_.erase(found);
  const bool exceeded = limit > 0 && groups_->memory_kills(member) > 0;
  groups_->remove(member);
  return exceeded ? limit : 0;
}

}  // namespace regroup::process
