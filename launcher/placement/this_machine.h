// What a job may use of the host where regroup was called, read before its members are placed.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/placement/cluster_view.h"
#include "launcher/spec/job_spec.h"

namespace regroup::placement {

// What the job may use of `here`, this machine: with --do-not-launch that of HWLOC_XMLFILE or
// HWLOC_SYNTHETIC in its place; slots may be hardware threads.
[[nodiscard]] base::Result<alloc::Allocation> usable_allocation(const spec::JobSpec& spec,
                                                                alloc::Allocation here);

// This machine as the only host of a job, for any number of members. Its inventory is taken only if
// members are bound, get GPUs, are dealt out over its parts, counted by them, or shown; detected
// GPUs are cached in `cache_folder` (discover.h).
[[nodiscard]] ClusterHost this_machine(const spec::JobSpec& spec,
                                       const alloc::Allocation& allocation,
                                       const std::string& cache_folder);

}  // namespace regroup::placement
