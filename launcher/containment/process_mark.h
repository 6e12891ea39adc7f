// A process by its number and the time of its start: no later process of the same number has both.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/clock.h"

namespace regroup::launcher {

// "PID START", as a record of a job has it; "" if there is no such process.
[[nodiscard]] std::string process_mark(pid_t pid);

// Waits until the processes of this user with these marks have ended, and SIGKILLs those that are stopped, or
// still there when `limit` has passed. Blocks. What is no mark is left out.
void end_marked(const std::vector<std::string>& marks, core::Duration limit);

}  // namespace regroup::launcher
