// Placement on processors that the user names: rank files, processor lists, and hydra's numbering.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/placement/place.h"

namespace regroup::placement {

// True if place_explicitly() handles the request.
[[nodiscard]] bool is_explicit(const PlaceRequest& request, const Policy& policy);

// True if each processor of the list goes to one member; else all members of a program share it.
[[nodiscard]] bool takes_list_in_order(const PlaceRequest& request, const Policy& policy);

// Fills in the ranks of `out`, whose policy is set. kInvalidArgument: there is no such processor.
// kResourceExhausted: two ranks would share a processor, or there are too few.
[[nodiscard]] base::Status place_explicitly(const topology::Topology& topology,
                                            const PlaceRequest& request, Placement& out);

// The topology with only the processors of --cpu-set, which lists cores, or hardware threads if
// those are slots.
[[nodiscard]] base::Result<topology::Topology> only_cpu_set(const topology::Topology& topology,
                                                            const spec::Mapping& mapping);

// The threads with these operating system numbers.
[[nodiscard]] topology::ThreadSet threads_with(const topology::Topology& topology,
                                               const std::vector<int>& os);

}  // namespace regroup::placement
