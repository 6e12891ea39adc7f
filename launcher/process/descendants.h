// Finds and kills all descendants of a process, so that a job leaves none behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/clock.h"

namespace regroup::process {

// Makes this process a child subreaper: orphaned descendants become its children.
void become_subreaper();

// The descendants of `root` at this moment, parents first.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root);

// SIGKILLs all descendants of this process and reaps them until none is left. Blocks for `limit` at
// most; false: some had not ended by then, though SIGKILL was sent to them. `reaped` is called with
// pid and wait status of each child. `exiting`: all descendants are already ending, so they get a
// moment before they are killed. For a subreaper with SIGCHLD blocked.
bool kill_descendants(base::Duration limit, const std::function<void(pid_t, int)>& reaped = {},
                      bool exiting = false);

}  // namespace regroup::process
