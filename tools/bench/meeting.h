// How the ranks of a job on one host get the descriptor that rank 0 has: over a socket in the abstract
// namespace, which leaves no file.
#pragma once

#include <string>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"

namespace regroup::bench {

// Rank 0: gives `fd` to the ranks 1..size-1, which call take_descriptor() with the same `name` and `agreed`.
// Blocks until `deadline`. Refuses processes of other users.
[[nodiscard]] core::Status give_descriptor(const std::string& name, int fd, int size,
                                           const std::string& agreed, core::TimePoint deadline);

// The others.
[[nodiscard]] core::Result<core::Fd> take_descriptor(const std::string& name, int rank,
                                                     const std::string& agreed, core::TimePoint deadline);

}  // namespace regroup::bench
