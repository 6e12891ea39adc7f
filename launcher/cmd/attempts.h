// How often a job was begun that goes on from its checkpoints, and how it ended each time: kept beside them,
// in DIRECTORY/ATTEMPTS, so that who starts it again finds it.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "elastic/membership/coordinator_effects.h"
#include "launcher/options/request.h"
#include "launcher/supervise/agent.h"

namespace regroup::cmd {

// Counts one more, which is running now; whoever calls holds the lock of the directory. Empty: nothing is
// kept, and `environment` tells how often an allocator has started the job again. A file that cannot be read
// counts as none, and is told of on standard error.
[[nodiscard]] core::Result<membership::Attempt> count_attempt(const std::string& directory,
                                                              const launcher::Environment& environment);

enum class Ending : std::uint8_t { kPreempted, kFailed, kFinished };

// Keeps how the job ends; of one that has a notice at once, since its time may be over before it is. One of
// which nothing is kept was killed. For the agent's process; says why it could not.
void keep_end(const std::string& directory, Ending how);
// Of a job that is over, unless it was noticed.
void keep_end(const std::string& directory, const launcher::Agent& agent);

}  // namespace regroup::cmd
