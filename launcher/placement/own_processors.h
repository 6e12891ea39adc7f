// How many members a machine can bind, each to processors of its own.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "launcher/placement/place.h"

namespace regroup::placement {

// The number of members on this machine that get processors of their own. kInvalidArgument: the
// mapping names processors or objects that it lacks.
[[nodiscard]] base::Result<std::uint32_t> members_with_processors(
    const topology::Topology& topology, const PlaceRequest& request, const Policy& policy);

}  // namespace regroup::placement
