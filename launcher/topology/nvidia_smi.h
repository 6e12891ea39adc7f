// The output of `nvidia-smi topo -m`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/topology/machine.h"

namespace regroup::topology {

// Builds a machine in which every pair has the class in the matrix. The matrix does not give PCIe
// widths and GPU products. kInvalidArgument, "SOURCE:LINE: ...": the matrix is not square or not
// symmetric, has an unknown word, or its classes contradict each other.
[[nodiscard]] base::Result<Machine> parse_nvidia_smi(std::string_view text,
                                                     const std::string& source);

}  // namespace regroup::topology
