// Rails: on each host one rank for each of the first GPUs, of which those with the same number form
// a communicator of NCCL. So each communicator has one rank of a host, and as many as there are
// hosts. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/world.h"

namespace regroup::collective::nccl {

struct Rails {
  std::vector<std::vector<int>> ranks;  // [rail][host]: rank in the World
  std::vector<int> host_of;             // by rank

  // The rail of a rank, if it is on one.
  [[nodiscard]] std::optional<int> rail_of(int rank) const;
  [[nodiscard]] int hosts() const { return static_cast<int>(ranks.front().size()); }
};

// `gpus[r]`: a name of the GPU of rank r, unique on its host. As many rails as the host with the
// fewest GPUs has. Hosts are in the order of their first ranks, GPUs likewise.
[[nodiscard]] Rails rails_of(const proto::World& world, const std::vector<std::string>& gpus);

// The ranks on the host of rank 0 that may be the first of a rail: the first of each GPU there.
// `gpus`: at least of that host.
[[nodiscard]] std::vector<int> possible_leaders(const proto::World& world,
                                                const std::vector<std::string>& gpus);

// By leaf: the host that holds it, of owners_of().
[[nodiscard]] std::vector<int> hosts_of_leaves(const proto::World& world,
                                               const std::vector<proto::SlotId>& owners);

// The largest nodes of the canonical tree whose leaves are all on `host`, ascending; `single`: each
// leaf by itself.
[[nodiscard]] std::vector<proto::Interval> nodes_on(int host, const std::vector<int>& host_of_leaf,
                                                    bool single);

}  // namespace regroup::collective::nccl
