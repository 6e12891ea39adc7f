// Runs a job: from options to exit status.
#pragma once

#include "launcher/cmd/options.h"

namespace regroup::cmd {

// Blocks until the job is over and nothing of it is left; returns its exit status. Errors are on standard
// error. For the main thread of a process without others.
[[nodiscard]] int run_job(Options options);

}  // namespace regroup::cmd
