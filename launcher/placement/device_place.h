// Assigns GPUs and NICs to ranks, on the machines and networks of launcher/topology.
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

// The part of a host that a job may use.
struct HostShare {
  std::uint32_t host = 0;       // index into Fabric::hosts
  GpuSet free = 0;              // GPUs that the job may use
  std::vector<int> cpus;        // operating system numbers, ascending; empty: all
  std::uint32_t slots = 0;      // number of ranks without oversubscription; 0: unlimited
  std::uint32_t max_slots = 0;  // greatest number of ranks in any case; 0: unlimited
};

// Ranks that share GPUs of one host, as in jsrun.
struct ResourceSet {
  std::uint32_t ranks = 1;
  std::uint32_t gpus = 1;
  std::uint32_t cpus = 0;  // cores of the set; 0: a share of the cores near its GPUs
};

// Ranks without a GPU that serve the others over the network: parameter servers.
struct ServerRole {
  std::string name;
  std::uint32_t count = 0;
};

struct DeviceRequest {
  std::uint32_t sets = 1;  // number of sets, of `set.ranks` ranks each
  ResourceSet set;
  std::uint32_t sets_per_host = 0;  // greatest number of sets on a host; 0: unlimited
  std::uint32_t min_sets = 0;       // least number of sets of an elastic job; 0: not elastic
  bool last_goes_first = false;     // the shrink order begins with the highest ranks
  spec::Packing packing = spec::Packing::kBest;
  // Use only GPUs with this label or of this product; "": any, of one product if possible.
  std::string label;
  // --map-by device=: use the GPUs nearest to this NIC ("mlx5_0") or GPU ("gpu3"); "": any.
  std::string device;
  GpuSet keep = 0;  // with a single host: GPUs that must be used
  std::vector<ServerRole> servers;
  bool by_node = false;     // consecutive ranks are on different hosts
  bool heed_slots = false;  // no host gets more ranks than slots
};

struct DeviceSlot {
  std::uint32_t host = 0;  // index into Fabric::hosts
  std::uint32_t set = 0;
  std::string role;                        // of a server; "": not a server
  std::vector<std::uint32_t> gpus;         // indices into Machine::gpus
  std::vector<std::uint32_t> nics;         // indices into Machine::nics, nearest first
  std::uint32_t numa = topology::kNoPart;  // index into Machine::numas
  std::vector<int> cpus;                   // operating system numbers; empty: unknown
  std::string why;                         // the reason for this placement, a sentence
};

struct Prediction {
  double gbytes = 0;  // GB/s that the rings of every rank carry; infinite for a single rank
  // GB/s of NICs per rank when all ranks communicate with other hosts; infinite for one host.
  double outward = 0;
  std::string narrow;  // the bottleneck that limits `gbytes`; "": none
  std::uint32_t hosts = 0;
};

struct DevicePlacement {
  // Consecutive ranks are neighbours in the ring; servers come last.
  std::vector<DeviceSlot> ranks;
  Prediction predicted;
  // Sets in the order in which an elastic job releases them.
  std::vector<std::uint32_t> shrink_order;
  std::vector<std::string> why;  // a sentence for each decision
};

// Chooses the GPUs of `request.sets` sets, without processors and servers. kResourceExhausted: the
// message says what is missing, and the nearest request that fits. kInvalidArgument: the request is
// inconsistent, or a machine has more than kMostGpus.
[[nodiscard]] base::Result<DevicePlacement> choose_devices(const topology::Fabric& fabric,
                                                           const std::vector<HostShare>& allocation,
                                                           const DeviceRequest& request);

// As choose_devices(), with servers and processors.
[[nodiscard]] base::Result<DevicePlacement> place_on_devices(
    const topology::Fabric& fabric, const std::vector<HostShare>& allocation,
    const DeviceRequest& request);

// Shares with all GPUs of all hosts.
[[nodiscard]] std::vector<HostShare> whole_fabric(const topology::Fabric& fabric);

// The predicted seconds of a step of data-parallel training with `ranks` ranks. `bytes`: size of
// the gradients. `seconds`: time on one GPU, of which the backward pass (two thirds) overlaps with
// communication.
[[nodiscard]] double predicted_step(const Prediction& predicted, std::uint32_t ranks, double bytes,
                                    double seconds);

}  // namespace regroup::placement
