// Kills what is left of jobs whose launcher processes were all killed at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"

namespace regroup::process {

struct DeadJob {
  std::string job;
  std::size_t killed = 0;  // processes
  bool ended = true;       // all of it has ended
};

// Reads the records in `folder`. For each job that is provably dead (JobRecord::take_over) it kills
// this user's processes with REGROUP_JOB=job in their environment, then cleans its record. Blocks,
// usually for some microseconds, for `limit` at most. Returns the jobs of which a process was
// running.
[[nodiscard]] std::vector<DeadJob> end_dead_jobs(const std::string& folder, base::Duration limit);

// Whether end_dead_jobs() has work to do. Blocks for some microseconds.
[[nodiscard]] bool are_dead_jobs(const std::string& folder);

}  // namespace regroup::process
