// Loads the network between hosts from a file in any of the formats of docs/guide/topology.md.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/topology/fabric.h"

namespace regroup::topology {

// All hosts get `machine`. The content decides the format: JSON is the output of `kubectl get nodes
// -o json`; a line with SwitchName= or BlockName= means Slurm's topology.conf; else YAML of
// switches and NVLink domains. kNotFound: no such file. kInvalidArgument: "FILE:LINE: ...".
[[nodiscard]] base::Result<Fabric> load_fabric(const std::string& path, const Machine& machine);
[[nodiscard]] base::Result<Fabric> parse_fabric(const std::string& text, const Machine& machine,
                                                const std::string& source);

}  // namespace regroup::topology
