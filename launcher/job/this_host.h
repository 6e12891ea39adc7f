// What parsing reads of this machine.
#pragma once

#include <string>

#include "base/status.h"

namespace regroup::job {

// Whether the file may be executed and begins as what the kernel starts does: a script names its
// interpreter.
[[nodiscard]] bool runs_by_itself(const std::string& path);

// All of a file, or of a pipe; at most 16 MiB.
[[nodiscard]] base::Result<std::string> read_file(const std::string& path);

}  // namespace regroup::job
