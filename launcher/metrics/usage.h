// What members use: processor time and memory, of their control groups or of their processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace regroup::metrics {

struct Usage {
  double cpu_seconds = 0;          // since the start, of what lives and of what it has waited for
  std::uint64_t memory_bytes = 0;  // resident; of a control group all that it is charged for
  std::uint32_t processes = 0;     // 0: of a control group, which does not say
  bool operator==(const Usage&) const = default;
};

// Of each process group that has a living process, from /proc. One pass. `root` replaces "/" in
// tests.
[[nodiscard]] std::map<pid_t, Usage> usage_of_process_groups(const std::string& root = "");

// Of the control groups of one member, one folder per hierarchy, version 1 or 2. What they do not
// account for is absent.
struct GroupUsage {
  std::optional<double> cpu_seconds;
  std::optional<std::uint64_t> memory_bytes;
};
[[nodiscard]] GroupUsage usage_of_control_groups(const std::vector<std::string>& folders);

}  // namespace regroup::metrics
