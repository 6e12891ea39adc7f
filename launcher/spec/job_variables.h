// Variables that allocators set in their jobs: what members on all hosts of a job see of them, and
// what the commands that start agents do not inherit.
#pragma once

#include <string_view>

#include "launcher/spec/request.h"

namespace regroup::spec {

// Removes variables of allocators from `sent`, the environment of the job's first host, and from
// `own`, that of the agent here, so that an agent that gives members `sent`, and what `own` has
// besides, shows members on all hosts the same of the job. An MPI library may believe SLURM_NNODES
// and SLURM_TASKS_PER_NODE over its process manager. What describes a host is its own. If the two
// are of different jobs, as on a host that another job lends, those of `own` stay.
void share_job_variables(Environment& sent, Environment& own);

// `environment` without what would bend `command` ("srun", "qrsh", "blaunch"; others are not bent)
// when it starts an agent: options that srun takes from SLURM_CPU_BIND, SLURM_MEM_PER_CPU and
// SLURM_TRES_PER_TASK, debug output of qrsh on standard output.
[[nodiscard]] Environment environment_for(std::string_view command, Environment environment);

}  // namespace regroup::spec
