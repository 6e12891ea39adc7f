// The CPU time and memory that members use, from their control groups or their processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace regroup::metrics {

struct Usage {
  double cpu_seconds = 0;  // since the start; of living processes and reaped children
  std::uint64_t memory_bytes =
      0;                        // resident memory; for a control group all that it is charged for
  std::uint32_t processes = 0;  // 0 for a control group, which does not report it
  bool operator==(const Usage&) const = default;
};

// Reads /proc once; returns the usage of each process group with a living process. `root` replaces
// "/" in tests.
[[nodiscard]] std::map<pid_t, Usage> usage_of_process_groups(const std::string& root = "");

// The process group of a living process; empty if there is no process `pid`.
[[nodiscard]] std::optional<pid_t> process_group_of(pid_t pid, const std::string& root = "");

// The usage of one member by its control groups; empty values are not accounted by these groups.
struct GroupUsage {
  std::optional<double> cpu_seconds;
  std::optional<std::uint64_t> memory_bytes;
};
// `folders`: one per hierarchy, version 1 or 2.
[[nodiscard]] GroupUsage usage_of_control_groups(const std::vector<std::string>& folders);

}  // namespace regroup::metrics
