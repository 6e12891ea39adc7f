// Limit of open files of launcher processes: each member needs up to four descriptors in its agent.
#pragma once

#include <cstdint>

namespace regroup::process {

// Raises the soft limit (RLIMIT_NOFILE) of this process and its future children towards the hard
// one. Returns the former limit, for members; 0: unchanged.
std::uint64_t raise_open_files();

// Restores that limit for the calling process; 0: no change. Async-signal-safe. False: errno is
// set.
[[nodiscard]] bool restore_open_files(std::uint64_t soft);

}  // namespace regroup::process
