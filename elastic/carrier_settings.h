// What a member reads in its environment about the carriers of plane mpi.
#pragma once

#include <optional>

#include "collective/mpi/factory.h"
#include "elastic/options.h"

namespace regroup::elastic {

// Empty: the job has no --plane mpi (REGROUP_PLANE), or no agent has named regroup-mpi
// (REGROUP_MPI_PROGRAM).
[[nodiscard]] std::optional<collective::mpi::CarrierSettings> carrier_settings(
    const Environment& env);

}  // namespace regroup::elastic
