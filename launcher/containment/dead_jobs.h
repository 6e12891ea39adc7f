// Ends what is left of jobs all of whose launcher processes were killed at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/clock.h"

namespace regroup::launcher {

struct DeadJob {
  std::string job;
  std::size_t killed = 0;  // processes
  bool ended = true;       // nothing is left of it
};

// Looks through the records in `folder`. Of each job that is provably dead (JobRecord::take_over) it kills
// this user's processes that carry REGROUP_JOB=job in their environment, then cleans its record. Blocks,
// mostly for some microseconds, and until `limit` has passed at most. Tells of jobs of which something lived.
[[nodiscard]] std::vector<DeadJob> end_dead_jobs(const std::string& folder, core::Duration limit);

// Whether end_dead_jobs() has anything to do. Blocks for some microseconds.
[[nodiscard]] bool are_dead_jobs(const std::string& folder);

}  // namespace regroup::launcher
