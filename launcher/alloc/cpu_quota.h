// How much processor time the control groups of this process leave it.
#pragma once

#include <cstdint>
#include <string>

namespace regroup::alloc {

// Processors' worth of time, rounded up, at least 1: the least that this process's control group
// and those above it are given (cpu.max; version 1: cpu.cfs_quota_us / cpu.cfs_period_us). 0: no
// limit. `root`: as in own_cgroups().
[[nodiscard]] std::uint32_t cpu_quota(const std::string& root = "");

}  // namespace regroup::alloc
