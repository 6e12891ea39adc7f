// Places the members of a job on hosts, GPUs, NICs and processors: one pure function for mpirun's
// options
// (--map-by, --rank-by, --bind-to, -N, rank files) and for ours (--placement, --map-by device=,
// roles, resource sets). Its parts are host_map.h, device_place.h and place.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/device_place.h"
#include "launcher/placement/place.h"

namespace regroup::placement {

struct JobRequest {
  PlaceRequest ranks;  // members of each program, and what mpirun's options say of them
  // By program, the most on a host (-N); empty, or 0: any number.
  std::vector<std::uint32_t> per_host;
  // By program, GPUs of each member (of each resource set); empty: nobody gets any. A program
  // without GPUs beside others that have some serves them over the network, as a parameter server
  // does.
  std::vector<std::uint32_t> gpus;
  std::vector<std::uint32_t> cores;  // by program, of each member; empty, or 0: not said
  std::vector<std::string> roles;    // by program; empty: they have no names
  DeviceRequest devices;  // how GPUs are chosen; `sets`, `set.gpus` and `servers` are filled in

  [[nodiscard]] bool on_devices() const;
};

// By rank, as members go through the programs in order.
struct JobPlacement {
  Policy policy;                     // of the first host that has members; bound: somebody is
  std::vector<std::uint32_t> hosts;  // index into Fabric::hosts
  std::vector<Slot> slots;
  std::vector<DeviceSlot> devices;  // empty: nobody gets a GPU
  Prediction predicted;             // of `devices`
  // Sets, in the order in which an elastic job releases them.
  std::vector<std::uint32_t> shrink_order;
  std::vector<std::string> why;  // a sentence for each decision on devices
};

// `hosts`: those the job may use, in the order in which they are filled. Only a machine's
// `processors` count where nobody gets a GPU. kInvalidArgument: what is asked for does not exist or
// contradicts itself; kResourceExhausted: it does not fit; messages name what there is and the
// nearest that fits.
[[nodiscard]] base::Result<JobPlacement> place_job(const topology::Fabric& fabric,
                                                   const std::vector<HostShare>& hosts,
                                                   const JobRequest& request);

// The processors of a host that the job may use.
[[nodiscard]] topology::Topology usable_processors(const topology::Fabric& fabric,
                                                   const HostShare& host);

// How many members ppr:N:OBJECT gives on all of them; 0: there is no such object, or no ppr.
[[nodiscard]] std::uint32_t members_of_ppr(const topology::Fabric& fabric,
                                           const std::vector<HostShare>& hosts,
                                           const spec::Mapping& mapping);

}  // namespace regroup::placement
