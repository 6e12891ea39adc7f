// The inventory of a host, which its agent reports to the controller before members are placed.
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
  bool devices = false;             // include GPUs and NICs
  std::string topology;             // file on that host that describes them; "": detect them
  process::ClaimScope claims = {};  // claim_scope() of the requesting job
};

struct HostInventory {
  topology::Machine machine;  // with the processors of the host
  std::vector<int> cpus;      // the processors that the job may use
  GpuSet free = 0;            // visible_gpus()
  // GPU of `free` -> the other job that has claimed it (gpu_claims.h).
  std::map<std::uint32_t, std::string> claimed = {};
  std::uint32_t quota = 0;  // Host::quota; set by the caller
  // For a machine from a file: host_nics(); else empty.
  std::vector<topology::Nic> nics;
};

// The GPUs of `free` that no other job has claimed.
[[nodiscard]] GpuSet idle_gpus(const HostInventory& inventory);

// The name of a GPU in claims: its uuid, else its bus id, else its number.
[[nodiscard]] std::string claim_name(const topology::Gpu& gpu);

// Takes the inventory of this host. `cpus`: the processors that the calling process may use; `own`:
// its environment; `cache_folder`: see discover.h. A NIC in the file that is down on this host
// counts as down. The process must have no other threads. kUnavailable: the processors are unknown.
// Other errors name file and line.
[[nodiscard]] base::Result<HostInventory> take_inventory(const InventoryOptions& order,
                                                         std::vector<int> cpus,
                                                         const spec::Environment& own,
                                                         const std::string& cache_folder,
                                                         const topology::SysfsRoots& roots = {});

// Encode and decode as JSON. Decoding replaces control characters in names. kDataLoss: malformed.
[[nodiscard]] std::string inventory_to_json(const HostInventory& inventory);
[[nodiscard]] base::Result<HostInventory> inventory_from_json(std::string_view text);

}  // namespace regroup::placement
