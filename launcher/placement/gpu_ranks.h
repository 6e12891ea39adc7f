// The part of place_job() for members with GPUs and for their parameter servers.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/placement/job_place.h"

namespace regroup::placement {

// As place_job(). Programs whose members need the same number of GPUs form one ring; larger needs
// are placed first.
[[nodiscard]] base::Result<JobPlacement> place_by_gpus(const topology::Fabric& fabric,
                                                       const std::vector<HostShare>& hosts,
                                                       const JobRequest& request);

}  // namespace regroup::placement
