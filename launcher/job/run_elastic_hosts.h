// A job of -np MIN:MAX on several hosts.
#pragma once

#include "launcher/job/option_rules.h"
#include "launcher/job/restarts.h"

namespace regroup::job {

[[nodiscard]] LaunchEnd run_elastic_on_hosts(const spec::Options& options, const Launch& launch);

}  // namespace regroup::job
