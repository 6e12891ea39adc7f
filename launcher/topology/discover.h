// This machine: processors from hwloc, devices from sysfs, GPUs from NVML.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/sysfs.h"

namespace regroup::topology {

struct DiscoverOptions {
  SysfsRoots roots;
  std::string nvml = "libnvidia-ml.so.1";  // looked for where sysfs shows a GPU of NVIDIA
  std::string boot_id = "/proc/sys/kernel/random/boot_id";
  std::string cache_folder;             // 0700 and this user's; "": neither read nor written
  bool fresh = false;                   // what the cache says is replaced, not read
  std::optional<Topology> processors;   // instead of this machine's
  std::string source = "this machine";  // of its processors, for errors: machine_source()
};

// Devices are looked at once for each boot and each set of them that is visible (device_state.h):
// what was found lies in CACHE_FOLDER/machine.json (docs/guide/topology.md), readable by this user
// only; a file that is damaged, foreign, of another boot, of other devices or of another version is
// replaced. What NVML failed to tell is not kept. Processors are always read anew, as control
// groups leave them. kUnavailable: there is no libhwloc.so.15.
[[nodiscard]] base::Result<Machine> discover_machine(const DiscoverOptions& options);

}  // namespace regroup::topology
