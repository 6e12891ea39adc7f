// `regroup join [JOB]`: leases the hosts of this allocation to a running job.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// The exit status: 0 once the job does not use the hosts any more, 1 if it never did, or was lost.
// Signals must be blocked: SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU ask for the hosts
// back.
[[nodiscard]] int run_join(const CommandLine& command);

}  // namespace regroup::cli
