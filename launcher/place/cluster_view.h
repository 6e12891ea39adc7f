// From a job's options and what its hosts say of themselves to placed members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/options/options.h"
#include "launcher/place/host_inventory.h"
#include "launcher/place/job_place.h"
#include "launcher/place/members.h"

namespace regroup::launcher {

struct ClusterHost {
  std::string name;
  std::uint32_t slots = 0;      // 0: any number
  std::uint32_t max_slots = 0;  // 0: any number
  core::Result<HostInventory> inventory;
};

// Leaves of what a host has what was granted there. Numbers that count something else there (a control group
// shows its own GPUs only, from 0) change nothing: where no more is seen than was granted, that is it.
void keep_granted(const HostRequest& granted, HostInventory& inventory);

// What must be known of the hosts; none: nothing, members are neither bound nor get GPUs.
[[nodiscard]] std::optional<InventoryOptions> inventory_options(const Options& options,
                                                                const MemberNeeds& needs);

// The request that options come to; `counts`: members of each program.
[[nodiscard]] JobRequest job_request(const Options& options, const std::vector<std::uint32_t>& counts,
                                     const MemberNeeds& needs);

// place_job() on these hosts. Without GPUs, and where no binding was asked for in so many words, a host that
// cannot be looked at leaves everybody unbound. Errors name the host.
[[nodiscard]] core::Result<PlacedJob> place_on_cluster(const Options& options, std::vector<ClusterHost> hosts,
                                                       JobRequest request);

// What --map-by ppr:N:OBJECT comes to on all of them.
[[nodiscard]] core::Result<std::uint32_t> members_of_ppr(const Options& options,
                                                         const std::vector<ClusterHost>& hosts);

}  // namespace regroup::launcher
