// Places the members of a job, given its options and the inventories of its hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/host_inventory.h"
#include "launcher/placement/job_place.h"
#include "launcher/placement/members.h"
#include "launcher/spec/job_spec.h"

namespace regroup::placement {

struct ClusterHost {
  std::string name;
  std::uint32_t slots = 0;      // 0: any number
  std::uint32_t max_slots = 0;  // 0: any number
  base::Result<HostInventory> inventory;
};

// Reduces the inventory of a host to the granted cores and GPUs. If the host shows no more GPUs
// than were granted, all of them count: in a control group that hides the others the granted
// numbers are not those of the host.
void keep_granted(const spec::HostRequest& granted, HostInventory& inventory);

// The inventory that the placement needs; empty: none, since members are not bound and get no GPUs.
[[nodiscard]] std::optional<InventoryOptions> inventory_options(const spec::JobSpec& spec);

// The placement request that the options make; `counts`: members of each program.
[[nodiscard]] JobRequest job_request(const spec::JobSpec& spec,
                                     const std::vector<std::uint32_t>& counts,
                                     const MemberNeeds& needs);

// place_job() on these hosts. If a host has no inventory and the options request neither GPUs nor a
// binding, no member is bound. Errors name the host.
[[nodiscard]] base::Result<PlacedJob> place_on_cluster(const spec::JobSpec& spec,
                                                       std::vector<ClusterHost> hosts,
                                                       JobRequest request);

// The number of members that the options request: -np, or without it what ppr:N:OBJECT or PE=N
// gives on these hosts. Uses `hosts`, with inventories, only if counts_objects(spec).
[[nodiscard]] base::Result<spec::MemberRange> members_of(const spec::JobSpec& spec,
                                                         const std::vector<ClusterHost>& hosts);
[[nodiscard]] bool counts_objects(const spec::JobSpec& spec);

}  // namespace regroup::placement
