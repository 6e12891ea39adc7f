// Places the members of a job on hosts, GPUs, NICs and processors: one pure function for mpirun's
// options (--map-by, --rank-by, --bind-to, -N, rank files) and for Regroup's own (--placement,
// --map-by device=, roles, resource sets). Its parts are host_map.h, device_place.h and place.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/device_place.h"
#include "launcher/placement/place.h"

namespace regroup::placement {

struct JobRequest {
  PlaceRequest ranks;  // members of each program, and mpirun's options for them
  // Each of these vectors has an entry per program, or is empty.
  std::vector<std::uint32_t> per_host;  // greatest number of members on a host (-N); 0: unlimited
  std::vector<std::vector<std::string>> hosts;  // names of the only hosts for it; empty: all
  // GPUs per member (per resource set); empty: no member gets GPUs. If other programs have GPUs, a
  // program without serves them over the network, like a parameter server.
  std::vector<std::uint32_t> gpus;
  std::vector<std::uint32_t> cores;  // cores per member; 0: not requested
  std::vector<std::string> roles;    // names
  DeviceRequest devices;  // how to choose GPUs; place_job() sets `sets`, `set.gpus` and `servers`

  [[nodiscard]] bool on_devices() const;
};

// Vectors are by rank; ranks go through the programs in order.
struct JobPlacement {
  Policy policy;                     // of the first host with members; `bound`: some member is
  std::vector<std::uint32_t> hosts;  // indices into Fabric::hosts
  std::vector<Slot> slots;
  std::vector<DeviceSlot> devices;  // empty: no member gets GPUs
  Prediction predicted;             // for `devices`
  // Sets, in the order in which an elastic job releases them.
  std::vector<std::uint32_t> shrink_order;
  std::vector<std::string> why;  // a sentence for each decision on devices
};

// Places the job on `hosts`, in the order in which they are filled. If no member gets GPUs, uses
// only the machines' `processors`. kInvalidArgument: the request names something that does not
// exist, or is inconsistent. kUnavailable: it needs more slots; kResourceExhausted: it does not
// fit. Messages say what is available, and the nearest request that fits.
[[nodiscard]] base::Result<JobPlacement> place_job(const topology::Fabric& fabric,
                                                   const std::vector<HostShare>& hosts,
                                                   const JobRequest& request);

// The processors of a host that the job may use.
[[nodiscard]] topology::Topology usable_processors(const topology::Fabric& fabric,
                                                   const HostShare& host);

// The number of members that ppr:N:OBJECT gives on all `hosts`; 0: no such object, or no ppr.
[[nodiscard]] std::uint32_t members_of_ppr(const topology::Fabric& fabric,
                                           const std::vector<HostShare>& hosts,
                                           const spec::Mapping& mapping);

}  // namespace regroup::placement
