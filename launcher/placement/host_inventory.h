// The inventory of a host: what its agent reports to the controller before members are placed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/placement/placement_scorer.h"
#include "launcher/process/gpu_claims.h"
#include "launcher/spec/request.h"
#include "launcher/topology/machine.h"
#include "launcher/topology/sysfs.h"

namespace regroup::placement {

struct InventoryOptions {
  bool devices = false;             // GPUs and NICs, too
  std::string topology;             // file that describes them, read on that host; "": detect them
  process::ClaimScope claims = {};  // of the requesting job, as in claim_scope()
};

struct HostInventory {
  topology::Machine machine;  // with the processors of the host
  std::vector<int> cpus;      // the processors that the job may use
  GpuSet free = 0;            // visible_gpus()
  // By GPU of `free`: the other job that has claimed it (gpu_claims.h).
  std::map<std::uint32_t, std::string> claimed = {};
  std::uint32_t quota = 0;  // Host::quota, as the caller knows it
  // By NIC of a machine from a file, as host_nics() has them; else empty.
  std::vector<topology::Nic> nics;
};

// The GPUs of `free` that no other job has claimed.
[[nodiscard]] GpuSet idle_gpus(const HostInventory& inventory);

// The name of a GPU in claims: its uuid, else its bus id, else its number.
[[nodiscard]] std::string claim_name(const topology::Gpu& gpu);

// Takes the inventory of this host. `cpus`: those that the calling process may use; `own`: its
// environment; `cache_folder`: see discover.h. A NIC of a file that is down on this host counts as
// down. The process must have no other threads. kUnavailable: the processors are not known; errors
// name file and line.
[[nodiscard]] base::Result<HostInventory> take_inventory(const InventoryOptions& order,
                                                         std::vector<int> cpus,
                                                         const spec::Environment& own,
                                                         const std::string& cache_folder,
                                                         const topology::SysfsRoots& roots = {});

// As JSON. Parsed names have no control characters. kDataLoss: malformed.
[[nodiscard]] std::string inventory_to_json(const HostInventory& inventory);
[[nodiscard]] base::Result<HostInventory> inventory_from_json(std::string_view text);

}  // namespace regroup::placement
