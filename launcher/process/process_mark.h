// Identifies a process by pid and start time: no later process has both.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"

namespace regroup::process {

// "PID START", as in a job's record; "" if there is no such process.
[[nodiscard]] std::string process_mark(pid_t pid);

// Waits until the marked processes of this user have ended, and SIGKILLs those that are stopped, or
// that still run after `limit`. Blocks. Invalid marks are skipped.
void end_marked(const std::vector<std::string>& marks, base::Duration limit);

}  // namespace regroup::process
