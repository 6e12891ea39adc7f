// What a host says of itself to the controller of a job, before members are placed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "launcher/containment/gpu_claims.h"
#include "launcher/options/request.h"
#include "launcher/place/placement_scorer.h"
#include "launcher/topo/machine.h"
#include "launcher/topo/sysfs.h"

namespace regroup::launcher {

struct InventoryOptions {
  bool devices = false;    // GPUs and NICs, too
  std::string topology;    // file that describes them, read on that host; "": it looks for them
  ClaimScope claims = {};  // of the job that asks, as claim_scope() is told them
};

struct HostInventory {
  Machine machine;        // with the processors of the host
  std::vector<int> cpus;  // of these, those that the job may use
  GpuSet free = 0;        // visible_gpus()
  std::map<std::uint32_t, std::string> claimed =
      {};                   // of these, what other jobs have, and which (gpu_claims.h)
  std::uint32_t quota = 0;  // Host::quota, as the caller knows it
  std::vector<Nic> nics;    // by NIC of a machine from a file, as host_nics() has them; else empty
};

// Of `free`, what no other job has.
[[nodiscard]] GpuSet idle_gpus(const HostInventory& inventory);

// What a GPU is claimed by: its uuid, else its bus id, else its number.
[[nodiscard]] std::string claim_name(const Gpu& gpu);

// Of this host. `cpus`: those that the calling process may use; `own`: its environment; `cache_folder`: see
// discover.h. A NIC that a file describes and that is down here counts as down. Not beside other threads.
// kUnavailable: processors cannot be told; errors name file and line.
[[nodiscard]] core::Result<HostInventory> take_inventory(const InventoryOptions& order, std::vector<int> cpus,
                                                         const Environment& own,
                                                         const std::string& cache_folder,
                                                         const SysfsRoots& roots = {});

// As JSON. Names come back without control characters. kDataLoss: it is not such a text.
[[nodiscard]] std::string inventory_to_json(const HostInventory& inventory);
[[nodiscard]] core::Result<HostInventory> inventory_from_json(std::string_view text);

}  // namespace regroup::launcher
