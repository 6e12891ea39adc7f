// The limit on CPU time that this process's control groups set.
#pragma once

#include <cstdint>
#include <string>

namespace regroup::alloc {

// The number of CPUs whose time this process may use, rounded up, at least 1: the smallest limit of
// its control group and the groups above it (cpu.max; version 1: cpu.cfs_quota_us /
// cpu.cfs_period_us). 0: no limit. `root`: as in own_cgroups().
[[nodiscard]] std::uint32_t cpu_quota(const std::string& root = "");

}  // namespace regroup::alloc
