// Places the members of a job by its options and the inventories of its hosts.
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

// Which inventory the placement needs; none: members are neither bound nor get GPUs.
[[nodiscard]] std::optional<InventoryOptions> inventory_options(const spec::JobSpec& spec);

// The placement request of the options; `counts`: members of each program.
[[nodiscard]] JobRequest job_request(const spec::JobSpec& spec,
                                     const std::vector<std::uint32_t>& counts,
                                     const MemberNeeds& needs);

// place_job() on these hosts. If a host has no inventory and the options request neither GPUs nor a
// binding, no member is bound. Errors name the host.
[[nodiscard]] base::Result<PlacedJob> place_on_cluster(const spec::JobSpec& spec,
                                                       std::vector<ClusterHost> hosts,
                                                       JobRequest request);

// The members that the options ask for: -np, or without it as many as --map-by ppr:N:OBJECT gives
// on these hosts. Only if counts_objects(spec) the hosts matter: then each needs its inventory.
[[nodiscard]] base::Result<spec::MemberRange> members_of(const spec::JobSpec& spec,
                                                         const std::vector<ClusterHost>& hosts);
[[nodiscard]] bool counts_objects(const spec::JobSpec& spec);

}  // namespace regroup::placement
