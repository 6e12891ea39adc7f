// `regroup bench`.
#pragma once

#include "launcher/cmd/options.h"

namespace regroup::cmd {

// Becomes the program regroup-bench, which is told its place in the job around it. Returns an exit status if
// that cannot be.
[[nodiscard]] int run_bench(const Options& options);

}  // namespace regroup::cmd
