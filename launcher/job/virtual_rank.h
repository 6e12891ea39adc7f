// torchrun's --virtual-local-rank: each rank believes itself alone on its host.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "launcher/spec/job_spec.h"

namespace regroup::job {

// Adds to the environment of each rank LOCAL_RANK=0 and, where it has been given no GPU yet,
// CUDA_VISIBLE_DEVICES: of the devices in its program's own CUDA_VISIBLE_DEVICES the one of its
// number on its host, or that number. `counts`: ranks of each program; `host_of`: by rank, empty:
// all on one host; `environments`: by rank, or empty. kInvalidArgument: a program's
// CUDA_VISIBLE_DEVICES has too few devices.
[[nodiscard]] base::Status add_virtual_ranks(const spec::JobSpec& spec,
                                             const std::vector<std::uint32_t>& counts,
                                             const std::vector<std::uint32_t>& host_of,
                                             std::vector<spec::Environment>& environments);

}  // namespace regroup::job
