// How much more memory this process can allocate, given the machine and the process's cgroups (v1
// and v2).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace regroup::base {

struct MemoryLimit {
  std::uint64_t available = 0;  // bytes
  std::string source;           // "MemAvailable" or "cgroup /jobs/a: memory.max"
};

// The limit that leaves the least memory. `root` replaces "/" in tests on recorded file trees.
[[nodiscard]] Result<MemoryLimit> memory_limit(const std::string& root = "");

}  // namespace regroup::base
