// Chooses the hosts of a job's ranks, and the GPUs on each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "launcher/placement/device_place.h"

namespace regroup::placement {

// The PlacementScorer of each machine of a fabric, made at its first use.
class PlacementScorers {
 public:
  explicit PlacementScorers(const topology::Fabric& fabric)
      : fabric_(fabric), scorers_(fabric.machines.size()) {}
  [[nodiscard]] PlacementScorer& of_machine(std::uint32_t machine) {
    if (scorers_[machine] == nullptr)
      scorers_[machine] = std::make_unique<PlacementScorer>(fabric_.machines[machine]);
    return *scorers_[machine];
  }
  [[nodiscard]] PlacementScorer& of_host(std::uint32_t host) {
    return of_machine(fabric_.hosts[host].machine);
  }
  [[nodiscard]] const topology::Machine& machine_of(std::uint32_t host) const {
    return fabric_.machines[fabric_.hosts[host].machine];
  }
  [[nodiscard]] const topology::Fabric& fabric() const { return fabric_; }

 private:
  const topology::Fabric& fabric_;
  std::vector<std::unique_ptr<PlacementScorer>> scorers_;
};

struct HostPart {
  std::uint32_t host = 0;
  GpuSet gpus = 0;
  GpuSet free = 0;  // the free GPUs from which `gpus` was chosen
};

// Predicts the bandwidth of ranks on these GPUs.
[[nodiscard]] Prediction predict(PlacementScorers& scorers, const std::vector<HostPart>& parts);

struct GangRequest {
  std::uint32_t sets = 1;
  std::uint32_t gpus = 1;      // per set
  std::uint32_t per_host = 0;  // greatest number of sets on a host; 0: unlimited
  spec::Packing packing = spec::Packing::kBest;
  GpuSet keep = 0;          // with a single host: GPUs that must be used
  std::uint32_t ranks = 0;  // ranks per set, to respect the hosts' slots; 0: ignore slots
};

// Chooses hosts and GPUs; hosts of one switch are consecutive. Empty: the request does not fit, or
// the hosts on which it would are not connected.
[[nodiscard]] std::vector<HostPart> choose_hosts(PlacementScorers& scorers,
                                                 const std::vector<HostShare>& allocation,
                                                 const GangRequest& request);

}  // namespace regroup::placement
