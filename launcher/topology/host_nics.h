// Matches the NICs of a machine from a file with those of this host.
#pragma once

#include <vector>

#include "launcher/topology/machine.h"
#include "launcher/topology/sysfs.h"

namespace regroup::topology {

// For each NIC of `machine`, this host's port with the same bus id and port number, or with the
// same name if `machine` has no bus id. A result without a name: this host has no such port.
[[nodiscard]] std::vector<Nic> host_nics(const Machine& machine, const SysfsRoots& roots);

}  // namespace regroup::topology
