// Variables of Slurm: what members on all hosts of a job see of it, and what our own srun does not
// inherit.
#pragma once

#include <string_view>

#include "launcher/spec/request.h"

namespace regroup::spec {

// Those of the job, `sent` by its first host, and of this host those that describe it; `own` are
// the variables of the step that the agent here is. So that members on all hosts read the same of
// the job: an MPI library may believe SLURM_NNODES and SLURM_TASKS_PER_NODE over its process
// manager. If the two are of different jobs, as on a host that another job lends: `own`.
[[nodiscard]] Environment slurm_variables(const Environment& sent, const Environment& own);

// `environment` without the options of sbatch, salloc and srun that srun would apply to the step of
// an agent, as SLURM_CPU_BIND, SLURM_MEM_PER_CPU and SLURM_TRES_PER_TASK.
[[nodiscard]] Environment without_srun_options(Environment environment);

// SLURM_... and SLURMD_...
[[nodiscard]] bool is_slurm_variable(std::string_view name);

}  // namespace regroup::spec
