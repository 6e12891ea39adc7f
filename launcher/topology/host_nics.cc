// A file has the card names of the machine on which it was recorded, or arbitrary names ("net0").
#include "launcher/topology/host_nics.h"

#include <algorithm>
#include <utility>

namespace regroup::topology {

std::vector<Nic> host_nics(const Machine& machine, const SysfsRoots& roots) {
  std::vector<Nic> there;
  MachineParts parts = read_sysfs(roots);
  for (PciDevice& device : parts.devices) {
    for (Nic& port : device.ports) {
      port.bus_id = device.link.bus_id;
      there.push_back(std::move(port));
    }
  }
  std::vector<Nic> out;
  for (const Nic& nic : machine.nics) {
    const auto found = std::find_if(there.begin(), there.end(), [&nic](const Nic& other) {
      const bool same = nic.bus_id.empty() ? other.name == nic.name : other.bus_id == nic.bus_id;
      return same && other.port == nic.port;
    });
    out.push_back(found == there.end() ? Nic() : *found);
  }
  return out;
}

}  // namespace regroup::topology
