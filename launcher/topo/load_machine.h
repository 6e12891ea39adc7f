// A recorded or synthetic machine from a file in any of the formats of docs/topology.md.
#pragma once

#include <string>

#include "core/status.h"
#include "launcher/topo/machine.h"

namespace regroup::launcher {

// What the format is, is seen by the text: hwloc's or NCCL's XML, `nvidia-smi topo -m`, or the small
// language. kNotFound; kInvalidArgument, "FILE:LINE: ...".
[[nodiscard]] core::Result<Machine> load_machine(const std::string& path);
[[nodiscard]] core::Result<Machine> parse_machine(const std::string& text, const std::string& source);

// Where NCCL finds this file, absolute, if it is NCCL's XML; "" if it is not.
[[nodiscard]] std::string nccl_topology_file(const std::string& path);

}  // namespace regroup::launcher
