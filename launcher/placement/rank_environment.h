// What a rank's environment says of the devices it has been given.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/device_place.h"
#include "launcher/spec/request.h"

namespace regroup::placement {

// What a host's own devices are called.
struct HostDevices {
  std::vector<std::string> uuids;  // of its GPUs
  // The same, claim_name(); "": it is not claimed, for others have it too.
  std::vector<std::string> claims;
  // By NIC of its machine; empty: as that says. One without a name: not there.
  std::vector<topology::Nic> nics;
};

// By rank:
//   CUDA_VISIBLE_DEVICES: its GPUs, by uuid where those are known, else by number and
//     CUDA_DEVICE_ORDER=PCI_BUS_ID. AMD: ROCR_VISIBLE_DEVICES, and those that count within it, if
//     the user set them, from 0.
//   UCX_NET_DEVICES: its nearest NICs.
//   NCCL_IB_HCA, NCCL_SOCKET_IFNAME: NICs near GPUs of this job on the host; the same for all its
//   ranks there. NCCL_TOPO_FILE: `nccl_topology`, unless that is "". REGROUP_PLACEMENT: all of it
//   as JSON, with the sentence that says why.
// What the user's own environment, `own`, says of NICs stays; of NICs that a host does not have
// nothing is said. `devices`: by host of the fabric; a host without an entry has those of its
// machine.
[[nodiscard]] std::vector<spec::Environment> rank_environments(
    const topology::Fabric& fabric, const std::vector<DeviceSlot>& ranks,
    const std::string& nccl_topology, const spec::Environment& own,
    const std::vector<HostDevices>& devices = {});

}  // namespace regroup::placement
