// What parsing reads of this machine.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/hosts.h"

namespace regroup::job {

// Of this machine: that by which jobs call it first, then its addresses, and their names in
// /etc/hosts.
[[nodiscard]] std::vector<std::string> host_names();
// Of all hosts of /etc/hosts.
[[nodiscard]] spec::HostAliases host_aliases();

// Whether the file may be executed and begins as what the kernel starts does: a script names its
// interpreter.
[[nodiscard]] bool runs_by_itself(const std::string& path);

// All of a file, or of a pipe; at most 16 MiB.
[[nodiscard]] base::Result<std::string> read_file(const std::string& path);

}  // namespace regroup::job
