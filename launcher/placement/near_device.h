// --map-by device=NAME: chooses the GPUs nearest to a NIC or to another GPU.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/placement/gang.h"

namespace regroup::placement {

// Chooses, host after host, the GPUs with the best path to request.device. Empty: they do not fit.
// kInvalidArgument: a host has no such device; the message lists the devices that it has.
[[nodiscard]] base::Result<std::vector<HostPart>> choose_near(
    const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
    const DeviceRequest& request);

}  // namespace regroup::placement
