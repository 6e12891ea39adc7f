// Assigns GPUs and NICs to ranks, on machines and networks of launcher/topo.
// docs/guide/placement.md explains the score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/placement_scorer.h"
#include "launcher/spec/mapping.h"
#include "launcher/topology/fabric.h"

namespace regroup::placement {

// What a job may use of a host.
struct HostShare {
  std::uint32_t host = 0;       // index into Fabric::hosts
  GpuSet free = 0;              // others have the rest
  std::vector<int> cpus;        // operating system numbers, ascending; empty: all
  std::uint32_t slots = 0;      // ranks that it is meant for; 0: any number
  std::uint32_t max_slots = 0;  // the most ranks, also with oversubscription; 0: any number
};

// Ranks that share GPUs of one host, as jsrun has it.
struct ResourceSet {
  std::uint32_t ranks = 1;
  std::uint32_t gpus = 1;
  std::uint32_t cpus = 0;  // cores of the set; 0: its share of what is near
};

// Ranks that serve the others over the network and have no GPU: parameter servers.
struct ServerRole {
  std::string name;
  std::uint32_t count = 0;
};

struct DeviceRequest {
  std::uint32_t sets = 1;  // of `set.ranks` ranks each
  ResourceSet set;
  std::uint32_t sets_per_host = 0;  // at most; 0: any number
  std::uint32_t min_sets = 0;       // an elastic job may be left with so few; 0: it is not elastic
  bool last_goes_first = false;     // the highest ranks come first in the shrink order
  spec::Packing packing = spec::Packing::kBest;
  std::string
      label;  // only GPUs of this label or product; "": all, of one product if that is possible
  std::string
      device;  // --map-by device=: the nearest GPUs to this NIC ("mlx5_0") or GPU ("gpu3"); "": any
  GpuSet keep = 0;  // these must be among them, of the only host
  std::vector<ServerRole> servers;
  bool by_node = false;     // neighbours in rank are on different hosts
  bool heed_slots = false;  // no host gets more ranks than slots
};

struct DeviceSlot {
  std::uint32_t host = 0;  // index into Fabric::hosts
  std::uint32_t set = 0;
  std::string role;                        // of a server; "": none
  std::vector<std::uint32_t> gpus;         // index into Machine::gpus
  std::vector<std::uint32_t> nics;         // index into Machine::nics, the nearest first
  std::uint32_t numa = topology::kNoPart;  // index into Machine::numas
  std::vector<int> cpus;  // operating system numbers; empty: nothing is known of them
  std::string why;        // a sentence
};

struct Prediction {
  double gbytes = 0;  // that every rank's rings carry; infinite: there is nobody to talk to
  // GB/s of NICs for each rank when all talk to other hosts at once; infinite: one host.
  double outward = 0;
  std::string narrow;  // what limits `gbytes`; "": nothing
  std::uint32_t hosts = 0;
};

struct DevicePlacement {
  // Neighbours in the ring are neighbours in rank; servers come last.
  std::vector<DeviceSlot> ranks;
  Prediction predicted;
  // Sets in the order in which an elastic job releases them.
  std::vector<std::uint32_t> shrink_order;
  std::vector<std::string> why;  // a sentence for each decision
};

// GPUs, and no processors yet, of `request.sets` sets: no servers. kResourceExhausted: says what is
// missing and the nearest that fits. kInvalidArgument: what is asked for contradicts itself, or a
// machine has more than kMostGpus.
[[nodiscard]] base::Result<DevicePlacement> choose_devices(const topology::Fabric& fabric,
                                                           const std::vector<HostShare>& allocation,
                                                           const DeviceRequest& request);

// The same with servers and processors.
[[nodiscard]] base::Result<DevicePlacement> place_on_devices(
    const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
    const DeviceRequest& request);

// All GPUs of all hosts.
[[nodiscard]] std::vector<HostShare> whole_fabric(const topology::Fabric& fabric);

// A step of data-parallel training: gradients of `bytes`, `seconds` on one GPU, of which the
// backward pass, two thirds, hides communication. Seconds with `ranks` of them.
[[nodiscard]] double predicted_step(const Prediction& predicted, std::uint32_t ranks, double bytes,
                                    double seconds);

}  // namespace regroup::placement
