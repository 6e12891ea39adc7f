// A job of -np N on several hosts.
#pragma once

#include "launcher/alloc/allocator.h"
#include "launcher/job/option_rules.h"

namespace regroup::job {

// `here`: what this host has. The exit status of the job.
[[nodiscard]] int run_on_hosts(const spec::Options& options, const alloc::Allocation& here);

}  // namespace regroup::job
