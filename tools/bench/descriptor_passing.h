// Passes a file descriptor from rank 0 to the other ranks of a job on one host, over a Unix socket
// in the abstract namespace, so that no file remains.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace regroup::bench {

// Rank 0 sends `fd` to ranks 1..size-1, which call take_descriptor() with the same `name` and
// `agreed`. Blocks until all have it or `deadline` (kDeadlineExceeded). Ignores processes of other
// users.
[[nodiscard]] base::Status give_descriptor(const std::string& name, int fd, int size,
                                           const std::string& agreed, base::TimePoint deadline);

// Called by ranks 1..size-1. kInvalidArgument if `agreed` differs from rank 0's.
[[nodiscard]] base::Result<base::Fd> take_descriptor(const std::string& name, int rank,
                                                     const std::string& agreed,
                                                     base::TimePoint deadline);

}  // namespace regroup::bench
