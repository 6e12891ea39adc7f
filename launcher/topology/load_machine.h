// A recorded or synthetic machine from a file in any of the formats of docs/guide/topology.md.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// What the format is, is seen by the text: hwloc's or NCCL's XML, `nvidia-smi topo -m`, or the
// small language. A process of its own reads the file (read_apart.h). kNotFound; kInvalidArgument,
// "FILE:LINE: ..." or "FILE: ..." where the reader died of it; kDeadlineExceeded: the file's server
// does not answer.
[[nodiscard]] base::Result<Machine> load_machine(const std::string& path);
// A process of its own reads what libhwloc is given.
[[nodiscard]] base::Result<Machine> parse_machine(const std::string& text,
                                                  const std::string& source);

// Where NCCL finds this file, absolute, if it is NCCL's XML; "" if it is not.
[[nodiscard]] std::string nccl_topology_file(const std::string& path);

}  // namespace regroup::topology
