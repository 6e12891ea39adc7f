// Finds the control groups of this process, for cgroup v1 and v2.
#pragma once

#include <string>
#include <vector>

namespace regroup::process {

// One hierarchy of control groups.
struct CgroupBranch {
  int version = 1;
  std::string own;    // folder of this process's group
  std::string mount;  // folder of the topmost visible group
  bool cpu = false, memory = false,
       freezer = false;  // controllers; for v2 those that `own` may use
};

// The hierarchies of the calling process. `root` is prepended to every path, /proc/self/cgroup
// included, for recorded machines; "" is this machine. Empty: there are none.
[[nodiscard]] std::vector<CgroupBranch> own_cgroups(const std::string& root = "");

}  // namespace regroup::process
