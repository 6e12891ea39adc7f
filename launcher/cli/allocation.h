// `regroup allocation`.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cmd {

// regroup allocation [--json] [--allocator NAME]: the exit status.
[[nodiscard]] int run_allocation(const Options& options);

}  // namespace regroup::cmd
