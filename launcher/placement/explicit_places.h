// Members whose processors are named: rank files, lists of processors, and hydra's own counting.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/placement/place.h"

namespace regroup::placement {

// Whether place_explicitly() has the answer.
[[nodiscard]] bool is_explicit(const PlaceRequest& request, const Policy& policy);

// Fills in the ranks of `out`, whose policy is known. kInvalidArgument: there is no such processor;
// kResourceExhausted: two ranks would share one, or there are not enough.
[[nodiscard]] base::Status place_explicitly(const topology::Topology& topology,
                                            const PlaceRequest& request, Placement& out);

// Only the processors of --cpu-set, which numbers cores, or hardware threads where those are slots.
[[nodiscard]] base::Result<topology::Topology> only_cpu_set(const topology::Topology& topology,
                                                            const spec::Mapping& mapping);

// Those with these numbers of the operating system.
[[nodiscard]] topology::ThreadSet threads_with(const topology::Topology& topology,
                                               const std::vector<int>& os);

}  // namespace regroup::placement
