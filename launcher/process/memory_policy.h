// NUMA memory policy of a member: --mem-bind.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/request.h"

namespace regroup::process {

// For set_mempolicy(2).
struct MemoryOrder {
  int mode = 0;                      // MPOL_DEFAULT: nothing is set
  std::vector<unsigned long> nodes;  // a mask; empty: none
};

// The policy for a member that is bound to `cores` (operating system numbers; empty: not bound).
// Uses only nodes that this process may use (cpuset.mems). kInvalidArgument: no node is left, or
// the policy needs a bound member. `root` replaces "/" in tests.
[[nodiscard]] base::Result<MemoryOrder> memory_order(spec::MemoryPolicy policy,
                                                     const std::vector<int>& cores,
                                                     const std::string& root = "");

}  // namespace regroup::process
