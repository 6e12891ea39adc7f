// The network between hosts from a file in any of the formats of docs/guide/topology.md.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/topology/fabric.h"

namespace regroup::topology {

// All hosts have this `machine`. The format is seen by the text: JSON is what `kubectl get nodes -o
// json` says, a line with SwitchName= or BlockName= Slurm's topology.conf, else YAML of switches
// and NVLink domains. kNotFound; kInvalidArgument, "FILE:LINE: ...".
[[nodiscard]] base::Result<Fabric> load_fabric(const std::string& path, const Machine& machine);
[[nodiscard]] base::Result<Fabric> parse_fabric(const std::string& text, const Machine& machine,
                                                const std::string& source);

}  // namespace regroup::topology
