// The part of place_job() for members that get GPUs, and for those that serve them.
#pragma once

#include <vector>

#include "core/status.h"
#include "launcher/place/job_place.h"

namespace regroup::launcher {

// As place_job(). Programs whose members need as many GPUs are one ring; those that need more choose first.
[[nodiscard]] core::Result<JobPlacement> place_by_gpus(const Fabric& fabric,
                                                       const std::vector<HostShare>& hosts,
                                                       const JobRequest& request);

}  // namespace regroup::launcher
