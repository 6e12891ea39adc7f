// The network cards of a machine from a file, as the host itself knows them.
#pragma once

#include <vector>

#include "launcher/topology/machine.h"
#include "launcher/topology/sysfs.h"

namespace regroup::topology {

// By NIC of `machine`: the port of the host with its bus id and port number, or with its name where
// `machine` knows no bus id; one without a name: there is none.
[[nodiscard]] std::vector<Nic> host_nics(const Machine& machine, const SysfsRoots& roots);

}  // namespace regroup::topology
