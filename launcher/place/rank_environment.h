// What a rank's environment says of the devices it has been given.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/request.h"
#include "launcher/place/device_place.h"

namespace regroup::launcher {

// By rank, for those of `placement` on `host`:
//   CUDA_VISIBLE_DEVICES                its GPUs, by uuid where those are known; ROCR_VISIBLE_DEVICES for
//   AMD's UCX_NET_DEVICES                     its nearest NICs NCCL_IB_HCA, NCCL_SOCKET_IFNAME     NICs near
//   GPUs of this job on the host: the same for all its ranks NCCL_TOPO_FILE `nccl_topology`, unless that is
//   "" OMP_NUM_THREADS                     its cores REGROUP_PLACEMENT                   all of it as JSON,
//   with the sentence that says why
// Members of other hosts have an empty one. What the user's own environment says stays: Environment `own`.
[[nodiscard]] std::vector<Environment> rank_environments(const Fabric& fabric,
                                                         const DevicePlacement& placement, std::uint32_t host,
                                                         const std::string& nccl_topology,
                                                         const Environment& own);

// GPUs of `machine` that CUDA_VISIBLE_DEVICES (numbers or uuids, which may be shortened) leaves to this
// process; all if it is not set. kInvalidArgument names what is no GPU of this machine.
[[nodiscard]] core::Result<GpuSet> visible_gpus(const Machine& machine, const Environment& own);

}  // namespace regroup::launcher
