// What /proc says of the processes of this host.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace regroup::process {

// The process ids in /proc; any of them may have ended since.
[[nodiscard]] std::vector<pid_t> all_processes();

// True if `environment`, the content of a /proc/PID/environ, has the whole entry "NAME=VALUE".
[[nodiscard]] bool has_variable(std::string_view environment, std::string_view entry);

}  // namespace regroup::process
