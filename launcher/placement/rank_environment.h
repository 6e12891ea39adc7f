// The environment variables that tell a rank which devices it has been assigned.
#pragma once

#include <string>
#include <vector>

#include "launcher/placement/device_place.h"
#include "launcher/spec/request.h"

namespace regroup::placement {

// The names of a host's own devices.
struct HostDevices {
  std::vector<std::string> uuids;  // of its GPUs
  // claim_name() of each GPU; "": not claimed, because other jobs share it.
  std::vector<std::string> claims;
  // Its NICs, in the order of its machine's; without a name: missing. Empty: the machine's own.
  std::vector<topology::Nic> nics;
};

// The variables of each rank:
//   CUDA_VISIBLE_DEVICES: its GPUs, by uuid if known, else by number with
//     CUDA_DEVICE_ORDER=PCI_BUS_ID. For AMD: ROCR_VISIBLE_DEVICES; variables that count within it
//     are renumbered from 0 if the user has set them.
//   UCX_NET_DEVICES: its nearest NICs.
//   NCCL_IB_HCA, NCCL_SOCKET_IFNAME: the NICs near the job's GPUs on the host, the same for all
//     ranks there.
//   NCCL_TOPO_FILE: `nccl_topology`, unless that is "".
//   REGROUP_PLACEMENT: the whole placement as JSON, with its reason.
// Variables for NICs that the user has set in `own` stay; NICs that a host does not have are
// omitted. `devices`: by host of the fabric; a host without an entry has those of its machine.
[[nodiscard]] std::vector<spec::Environment> rank_environments(
    const topology::Fabric& fabric, const std::vector<DeviceSlot>& ranks,
    const std::string& nccl_topology, const spec::Environment& own,
    const std::vector<HostDevices>& devices = {});

}  // namespace regroup::placement
