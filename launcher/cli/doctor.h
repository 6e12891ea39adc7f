// `regroup doctor`.
#pragma once

#include "launcher/cli/options.h"

namespace regroup::cli {

// regroup doctor [--json] [--python PROGRAM]: executes that Python with the package's module
// regroup._doctor, which examines this machine. Returns the exit status if it cannot.
[[nodiscard]] int run_doctor(const CommandLine& command);

}  // namespace regroup::cli
