// What `nvidia-smi topo -m` prints.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// A machine in which every pair has the class that the matrix gives it; how wide its PCIe links are
// and which GPUs they are it does not say. kInvalidArgument, "SOURCE:LINE: ...": not square, not
// the same both ways, a word that is none, or pairs that contradict each other.
[[nodiscard]] base::Result<Machine> parse_nvidia_smi(std::string_view text,
                                                     const std::string& source);

}  // namespace regroup::topology
