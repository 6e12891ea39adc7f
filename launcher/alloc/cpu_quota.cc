// A group's limit is also bounded by those of all groups above it. In a container, its own group is
// the topmost one visible. Version 1 has a hierarchy for each controller: only that of cpu has the
// files. In version 2 a group above may have the controller where the own one has not.
#include "launcher/alloc/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "launcher/process/cgroup_tree.h"

namespace regroup::alloc {
namespace {

constexpr double kMost = 1 << 20;

// "150000 100000"; "max 100000": no limit.
std::optional<double> share_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && period > 0 ? std::optional(quota / period) : std::nullopt;
}

// A quota of -1: no limit.
std::optional<double> share_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0
             ? std::optional(quota / period)
             : std::nullopt;
}

}  // namespace

std::uint32_t cpu_quota(const std::string& root) {
  double least = kMost;
  for (const process::CgroupBranch& branch : process::own_cgroups(root)) {
    if (branch.version == 1 && !branch.cpu) continue;
    for (std::string at = branch.own; at.size() >= branch.mount.size(); at.resize(at.rfind('/'))) {
      const auto share = branch.version == 2 ? share_v2(at) : share_v1(at);
      if (share) least = std::min(least, *share);
      if (at.rfind('/') == std::string::npos) break;
    }
  }
  return least < kMost ? static_cast<std::uint32_t>(std::max(1.0, std::ceil(least))) : 0;
}

}  // namespace regroup::alloc
