// Loads a recorded or synthetic machine from a file in any of the formats of
// docs/guide/topology.md.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// The content decides the format: hwloc's or NCCL's XML, the output of `nvidia-smi topo -m`, or the
// small language (machine_text.h). A separate process reads the file (read_in_child.h). kNotFound:
// no such file. kInvalidArgument: "FILE:LINE: ...", or "FILE: ..." if the reader crashed.
// kDeadlineExceeded: the file system does not respond.
[[nodiscard]] base::Result<Machine> load_machine(const std::string& path);
// The same for `text`. A separate process parses text for libhwloc.
[[nodiscard]] base::Result<Machine> parse_machine(const std::string& text,
                                                  const std::string& source);

// The absolute path of the file, for NCCL_TOPO_FILE, if it is NCCL's XML; else "".
[[nodiscard]] std::string nccl_topology_file(const std::string& path);

}  // namespace regroup::topology
