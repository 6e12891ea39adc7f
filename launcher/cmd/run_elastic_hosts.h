// A job of -np MIN:MAX on several hosts.
#pragma once

#include "launcher/cmd/options.h"

namespace regroup::cmd {

// The exit status of the job.
[[nodiscard]] int run_elastic_on_hosts(Options options);

}  // namespace regroup::cmd
