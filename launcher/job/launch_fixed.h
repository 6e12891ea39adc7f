// Launches a job of -np N or of roles: all its members start together, and no coordinator is
// needed.
#pragma once

#include <optional>

#include "launcher/alloc/allocator.h"
#include "launcher/job/resolve.h"

namespace regroup::job {

// Runs the job and returns its exit status. `here`: what this host has. `resolved`: the job, if it
// runs on this host alone; none: its agents come up first, and it is resolved with what they
// report.
[[nodiscard]] int launch_fixed(const spec::JobSpec& spec, const alloc::Allocation& here,
                               std::optional<ResolvedJob> resolved);

}  // namespace regroup::job
