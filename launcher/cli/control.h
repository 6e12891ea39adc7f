// The control commands: `regroup status | resize | notice | kill-member |
// checkpoint save`.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// Asks the coordinator and prints its answer. Exit status: 0, or 1 with the reason on standard
// error. Every wait has a deadline.
[[nodiscard]] int run_control(const CommandLine& command);

}  // namespace regroup::cli
