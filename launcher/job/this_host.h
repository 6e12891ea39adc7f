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
// host_names(), and the names of all hosts of /etc/hosts, which is read once for both.
struct HostNames {
  std::vector<std::string> own;
  spec::HostAliases aliases;
};
[[nodiscard]] HostNames all_host_names();

// Whether the file may be executed and begins as what the kernel starts does: a script names its
// interpreter.
[[nodiscard]] bool runs_by_itself(const std::string& path);

// All of a file, or of a pipe; at most 16 MiB.
[[nodiscard]] base::Result<std::string> read_file(const std::string& path);

}  // namespace regroup::job
