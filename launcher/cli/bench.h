// `regroup bench`.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// Executes regroup-bench, with the place in the enclosing job as arguments. Returns an exit status
// only if that fails.
[[nodiscard]] int run_bench(const CommandLine& command);

}  // namespace regroup::cli
