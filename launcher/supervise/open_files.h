// How many descriptors a process of the launcher may have: each member costs its agent up to four.
#pragma once

#include <cstdint>

namespace regroup::launcher {

// Raises the soft limit (RLIMIT_NOFILE) of this process and its future children towards the hard one. The
// limit as it was, for members; 0 if nothing was changed.
std::uint64_t raise_open_files();

// Back to that, for the calling process; 0: no change. Async-signal-safe. False: errno says why.
[[nodiscard]] bool restore_open_files(std::uint64_t soft);

}  // namespace regroup::launcher
