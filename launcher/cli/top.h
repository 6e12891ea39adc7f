// `regroup top`: the progress of a running job, as its own --progress shows it.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// Follows a job until it ends. Exit status: 0, or 1 with the reason on standard error if there is
// no such job or its coordinator does not answer. Every wait has a deadline.
[[nodiscard]] int run_top(const CommandLine& command);

}  // namespace regroup::cli
