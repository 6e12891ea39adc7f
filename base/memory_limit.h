// Memory that this process may still take: the limit of the machine and of its cgroups (v1 and v2).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace regroup::base {

struct MemoryLimit {
  std::uint64_t available = 0;  // bytes
  std::string source;           // "MemAvailable" or "cgroup /jobs/a: memory.max"
};

// The smallest of all limits that apply. `root` replaces "/" in tests of recorded trees.
[[nodiscard]] Result<MemoryLimit> memory_limit(const std::string& root = "");

}  // namespace regroup::base
