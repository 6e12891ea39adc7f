// Rail-optimised networks: NIC i of each host hangs on rail i, and what goes from one rail to
// another takes the links upward. docs/guide/placement.md.
#pragma once

#include <vector>

#include "launcher/placement/gang.h"

namespace regroup::placement {

// GB/s that rings over these hosts carry, no more than `gbytes`, which they would without rails.
// Each ring stays on one rail as far as all hosts have room there; the rest changes rails.
// `narrow`, if that is less, names the switch.
[[nodiscard]] double over_rails(PlacementScorers& scorers, const std::vector<HostPart>& parts,
                                double gbytes, std::string* narrow);

// Changes the GPUs of hosts that have others to such as are near the rails of the host with the
// least choice, where that is faster.
void keep_to_rails(PlacementScorers& scorers, std::vector<HostPart>& parts);

}  // namespace regroup::placement
