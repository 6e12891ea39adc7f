// `regroup checkpoint`.
#pragma once

#include "launcher/cmd/options.h"

namespace regroup::cmd {

// Becomes the program regroup-checkpoint. Returns an exit status if that cannot be.
[[nodiscard]] int run_checkpoint(const Options& options);

}  // namespace regroup::cmd
