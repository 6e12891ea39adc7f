// Which control groups this process is in, for both versions of the kernel's interface.
#pragma once

#include <string>
#include <vector>

namespace regroup::launcher {

// One hierarchy of control groups.
struct CgroupBranch {
  int version = 1;
  std::string own;                                    // folder of the group that this process is in
  std::string mount;                                  // folder of the topmost group that can be seen
  bool cpu = false, memory = false, freezer = false;  // controllers; of version 2: those `own` may use
};

// Of the calling process. `root` stands before every path, /proc/self/cgroup included, for recorded machines;
// "" is this machine. Empty: there are none.
[[nodiscard]] std::vector<CgroupBranch> own_cgroups(const std::string& root = "");

}  // namespace regroup::launcher
