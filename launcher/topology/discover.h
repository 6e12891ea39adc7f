// Discovers this machine: processors from hwloc, devices from sysfs, GPUs from NVML.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/sysfs.h"

namespace regroup::topology {

struct DiscoverOptions {
  SysfsRoots roots;
  std::string nvml = "libnvidia-ml.so.1";  // loaded only if sysfs shows an NVIDIA GPU
  std::string boot_id = "/proc/sys/kernel/random/boot_id";
  std::string cache_folder;             // mode 0700, owned by this user; "": no cache
  bool fresh = false;                   // do not read the cache, but replace it
  std::optional<Topology> processors;   // use these instead of this machine's
  std::string source = "this machine";  // source of the processors, for errors: machine_source()
};

// Discovers the devices once per boot and per set of visible devices (device_state.h), and caches
// them in CACHE_FOLDER/machine.json (docs/guide/topology.md), which only this user can read.
// Replaces a cache that is damaged, has another owner, or is of another boot, version or set of
// devices. Does not cache a result after NVML has failed. Always reads the processors anew, within
// the limits of control groups. kUnavailable: there is no libhwloc.so.15.
[[nodiscard]] base::Result<Machine> discover_machine(const DiscoverOptions& options);

}  // namespace regroup::topology
