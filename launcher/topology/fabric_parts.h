// Builds a Fabric, for all readers, from switches, blocks and domains in any order.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/fabric.h"

namespace regroup::topology {

struct FabricPart {
  std::string name;
  FabricKind kind = FabricKind::kSwitch;
  std::string parent;                 // "": not given here
  std::vector<std::string> children;  // listed by this part
  std::vector<std::string> hosts;     // connected directly to this part
  double up_gbytes = 0;
  double host_gbytes = 0;
  std::uint32_t rails = 0;
  std::size_t line = 0;
};

// Builds the tree. kInvalidArgument, "SOURCE:LINE: ...": two parts with one name, a name without a
// part, a part with two parents, a cycle, a host at two leaves, more than 200,000 hosts.
[[nodiscard]] base::Result<Fabric> build_fabric(std::vector<FabricPart> parts,
                                                const Machine& machine, const std::string& source);

}  // namespace regroup::topology
