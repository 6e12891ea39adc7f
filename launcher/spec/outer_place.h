// Variables that tell a process its place in a job: those of a job around this one mean nothing to
// its members.
#pragma once

#include "launcher/spec/request.h"

namespace regroup::spec {

// `environment` without what mpirun, hydra, torchrun or regroup told the process in which we were
// started. What a user may have set for all jobs stays: PMIX_MCA_*, OMPI_MCA_*.
[[nodiscard]] Environment without_outer_place(Environment environment);

}  // namespace regroup::spec
