// Reads what resolve() needs: the only reading of machines before a job starts.
#pragma once

#include <vector>

#include "base/status.h"
#include "launcher/agent/hosts.h"
#include "launcher/alloc/allocator.h"
#include "launcher/job/resolve.h"

namespace regroup::job {

// Of a job on this host alone; `here`: what this host has. Looks for its folders and programs.
[[nodiscard]] base::Result<Inventory> read_inventory(const spec::JobSpec& spec,
                                                     const alloc::Allocation& here);

// Of a job whose hosts come while it runs: its programs, which each host looks for itself.
[[nodiscard]] Inventory without_hosts(const spec::JobSpec& spec);

// Of a job on the hosts of the options, whose agents are up. Requests their inventories if the
// placement needs them; a host without a number of slots gets as many as it has cores. Runs the
// loop for 10 s at most.
[[nodiscard]] Inventory query_inventories(const spec::JobSpec& spec, const alloc::Allocation& here,
                                          agent::Hosts& hosts);

// Of a job on several hosts with placement::is_described(): each host is a copy of the described
// machine. Contacts no host.
[[nodiscard]] base::Result<Inventory> described_inventories(const spec::JobSpec& spec,
                                                            const alloc::Allocation& here);

}  // namespace regroup::job
