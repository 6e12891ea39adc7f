// What readers of fabrics have in common: switches, blocks and domains in any order become a tree.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/fabric.h"

namespace regroup::topology {

struct FabricPart {
  std::string name;
  FabricKind kind = FabricKind::kSwitch;
  std::string parent;                 // "": not said here
  std::vector<std::string> children;  // as the parent lists them
  std::vector<std::string> hosts;     // that hang on it directly
  double up_gbytes = 0, host_gbytes = 0;
  std::uint32_t rails = 0;
  std::size_t line = 0;
};

// kInvalidArgument, "SOURCE:LINE: ...": a name twice, a switch without a description, one below
// two, a cycle, a host at two leaves, more than 200,000 hosts.
[[nodiscard]] base::Result<Fabric> build_fabric(std::vector<FabricPart> parts,
                                                const Machine& machine, const std::string& source);

}  // namespace regroup::topology
