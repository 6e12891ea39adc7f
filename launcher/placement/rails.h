// Rail-optimised networks: NIC i of each host connects to rail i; traffic between rails uses the
// links upward. docs/guide/placement.md.
#pragma once

#include <vector>

#include "launcher/placement/gang.h"

namespace regroup::placement {

// The GB/s that rings over these hosts carry; at most `gbytes`, their bandwidth without rails.
// Rings stay on one rail as long as all hosts have capacity there; the others change rails. If the
// result is less than `gbytes`, `narrow` becomes the name of the limiting switch.
[[nodiscard]] double over_rails(PlacementScorers& scorers, const std::vector<HostPart>& parts,
                                double gbytes, std::string* narrow);

// Exchanges the GPUs of hosts for others near the rails of the host with the least choice, if that
// is faster.
void keep_to_rails(PlacementScorers& scorers, std::vector<HostPart>& parts);

}  // namespace regroup::placement
