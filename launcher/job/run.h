// Runs a job: from options to exit status.
#pragma once

#include "launcher/job/option_rules.h"

namespace regroup::job {

// Runs the job, blocks until all its processes have ended, and returns its exit status. Prints
// errors on standard error. For the main thread of a process without other threads.
[[nodiscard]] int run_job(const spec::JobSpec& spec);

}  // namespace regroup::job
