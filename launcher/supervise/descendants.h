// Every process that descends from this one, for leaving nothing behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "core/clock.h"

namespace regroup::launcher {

// From now on orphaned descendants become children of this process instead of leaving its tree.
void become_subreaper();

// The descendants of `root` at this moment, parents first.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root);

// SIGKILLs all descendants of this process and reaps them until none is left. Blocks until `limit` has passed
// at most; false: some could not be killed. `reaped` is told of each child with its wait status. `exiting`:
// all there are will end now of themselves, so they get a moment before they are looked for. For a subreaper
// with SIGCHLD blocked.
bool kill_descendants(core::Duration limit, const std::function<void(pid_t, int)>& reaped = {},
                      bool exiting = false);

}  // namespace regroup::launcher
