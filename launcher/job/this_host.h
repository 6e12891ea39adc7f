// What parsing reads of this machine.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace regroup::job {

// Of this machine: that by which jobs call it first.
[[nodiscard]] std::vector<std::string> host_names();

// All of a file, or of a pipe; at most 16 MiB.
[[nodiscard]] base::Result<std::string> read_file(const std::string& path);

}  // namespace regroup::job
