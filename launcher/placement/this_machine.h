// The part of this host that a job may use, read before its members are placed.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/placement/cluster_view.h"
#include "launcher/spec/job_spec.h"

namespace regroup::placement {

// The part of `here`, this machine, that the job may use. With --do-not-launch, HWLOC_XMLFILE or
// HWLOC_SYNTHETIC replaces the machine. Slots may be hardware threads.
[[nodiscard]] base::Result<alloc::Allocation> usable_allocation(const spec::JobSpec& spec,
                                                                alloc::Allocation here);

// Whether a description replaces every host of the job, so that none is contacted: with
// --do-not-launch and HWLOC_XMLFILE or HWLOC_SYNTHETIC.
[[nodiscard]] bool is_described(const spec::JobSpec& spec);

// This machine as the only host of a job, for any number of members. Takes its inventory only if
// the options bind, map, count or display members by its parts, or give them GPUs. Caches detected
// GPUs in `cache_folder` (discover.h).
[[nodiscard]] ClusterHost this_machine(const spec::JobSpec& spec,
                                       const alloc::Allocation& allocation,
                                       const std::string& cache_folder);

}  // namespace regroup::placement
