// `regroup allocation`.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// regroup allocation [--json] [--allocator NAME]: the exit status.
[[nodiscard]] int run_allocation(const CommandLine& command);

}  // namespace regroup::cli
