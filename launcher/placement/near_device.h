// --map-by device=NAME: GPUs by how near they are to a NIC or to another GPU.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/placement/gang.h"

namespace regroup::placement {

// Host after host, on each the GPUs with the best path to request.device. Empty: they do not fit.
// kInvalidArgument: some host has no such device; the message names what it has.
[[nodiscard]] base::Result<std::vector<HostPart>> choose_near(
    const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
    const DeviceRequest& request);

}  // namespace regroup::placement
