// The rings over which collectives of a set of GPUs run (several at once), and their total
// bandwidth. docs/guide/placement.md explains the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launcher/placement/routes.h"

namespace regroup::placement {

struct Ring {
  // Ends of Machine::paths, in order; the last connects to the first.
  std::vector<std::uint32_t> ends;
  double gbytes = 0;  // GB/s that it carries, half in each direction
};

struct RingPlan {
  // GB/s that every rank sends and receives at once ("bus bandwidth"); infinite for a single rank,
  // 0 if two ranks are not connected.
  double gbytes = 0;
  std::vector<Ring> rings;                 // the first carries the most
  std::vector<std::uint32_t> narrow_rows;  // the rows of Routes that limit the bandwidth
};

// Plans rings through all `gpus` and, if there are `nics`, through one of these, by which the ring
// continues to other machines. Optimal for up to 9 stations, heuristic for more.
[[nodiscard]] RingPlan plan_rings(const Routes& routes, std::span<const std::uint32_t> gpus,
                                  std::span<const std::uint32_t> nics);

}  // namespace regroup::placement
