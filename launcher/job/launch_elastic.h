// Launches a job of -np MIN:MAX: a coordinator decides who is a member, and agents start members as
// it says.
#pragma once

#include "launcher/job/resolve.h"
#include "launcher/job/restarts.h"

namespace regroup::job {

// Runs `job`, which has hosts if it runs on this one alone; else they come while it runs.
[[nodiscard]] LaunchEnd launch_elastic(const spec::JobSpec& spec, ResolvedJob job,
                                       const JobLaunch& launch);

}  // namespace regroup::job
